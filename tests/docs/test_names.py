"""Names in backquotes exist: modules, functions, settings, options, tables, columns and files."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer

from headrace.cli import app
from headrace.settings import Settings
from headrace.settings.setting_specs import specs_of
from tests.docs.blocks import DOCS, ROOT

PACKAGE = ROOT / "src" / "headrace"
PAGES = [ROOT / "README.md", *(page for page in sorted(DOCS.rglob("*.md")) if "coming-from" not in page.parts)]
SOURCES = ("src", "scripts", "deploy", "benchmarks", "Makefile", "compose.yaml", "pyproject.toml", "Dockerfile", ".env.example")
DATA = {"sample", "expected", "__pycache__"}
TEXTS = {"", ".py", ".js", ".java", ".html", ".sql", ".yml", ".yaml", ".toml", ".json", ".avsc", ".txt", ".ipynb", ".example"}

CODE = re.compile(r"`([^`\n]+)`")
FENCED = re.compile(r"^ *```.*?^ *```", re.MULTILINE | re.DOTALL)
NAME = re.compile(r"[A-Za-z_]\w*(?:\.\w+)*(?:\(\))?")
OPTION = re.compile(r"--[a-z][a-z-]+")
PATH = re.compile(r"([\w.-]+(?:/[\w.-]+)*/?)(?:: ?(\w+))?")
WORD = re.compile(r"[A-Za-z_]\w*")

FOREIGN: Mapping[str, str] = {
    "DOWNSTREAM": "Snowflake",
    "LocalTableScan": "Spark",
    "RewriteFiles": "Iceberg",
    "invalidate_caches": "Python",
    "is_incremental": "dbt",
    "unique_key": "dbt",
    "writeTo": "Spark",
    "crypto": "Spark: spark.network.crypto.enabled",
    "--volumes": "docker compose",
    "V1_1__name": "an example of a migration",
    "SHOP_POSTGRES_URL": "of a copy called shop",
    "ORDERS_KAFKA_TOPIC": "of a copy called orders",
    "_PORT": "the end of a variable",
    "_USER": "the end of a variable",
    "--properties-file": "spark-submit",
    "--py-files": "spark-submit",
    "--check": "PyIceberg's command line",
    "text/plain": "a media type",
    "apache/polaris-admin-tool": "an image",
    "customers/redact": "a topic of Shopify's webhooks",
    "metadata/unreferenced.json": "a file in a table's folder",
    "write-ahead-commit-log/chk-N/subtask-M.csv": "files in a table's folder",
    "chk-N/subtask-M.csv": "files in a table's folder",
    "stage/orders.sql": "an example of a table's file",
    "dist/": "made by make dist",
    "site/": "made by make docs",
}
"""Names that no file of Headrace has, and whose they are."""


@cache
def known_words() -> frozenset[str]:
    """Return the words of all sources, and the names of settings, environment variables and options."""
    words: set[str] = set(FOREIGN)
    for name in SOURCES:
        for file in [ROOT / name, *(ROOT / name).rglob("*")]:
            if file.is_file() and file.suffix in TEXTS and not DATA & set(file.parts):
                words |= {*WORD.findall(file.stem), *WORD.findall(file.read_text(encoding="utf-8"))}
    for spec in specs_of(Settings):
        words |= {*spec.name.split("."), spec.environ}
    return frozenset(words)


@cache
def known_options() -> frozenset[str]:
    return frozenset(option for command in commands(typer.main.get_command(app)) for option in options(command))


def commands(command: Any) -> Iterator[Any]:
    yield command
    for inner in getattr(command, "commands", {}).values():
        yield from commands(inner)


def options(command: Any) -> Iterator[str]:
    yield from (option for parameter in command.params for option in parameter.opts)


def exists(path: str) -> bool:
    """Return whether a path is one of the repository or the end of one in the package, or made of names of the state."""
    if path.startswith(".headrace/"):
        return set(WORD.findall(path)) <= known_words()
    return (ROOT / path).exists() or any(PACKAGE.glob(f"**/{path}"))


def unknown_names(text: str) -> list[str]:
    """Return what a page has in backquotes, outside of its blocks, and the code does not have."""
    unknown: list[str] = []
    for code in CODE.findall(FENCED.sub("", text)):
        if code in FOREIGN:
            continue
        if NAME.fullmatch(code):
            unknown += [code for word in WORD.findall(code) if word not in known_words()][:1]
        elif OPTION.fullmatch(code):
            unknown += [code] if code not in known_options() else []
        elif "/" in code and (path := PATH.fullmatch(code)):
            unknown += [code] if not exists(path[1]) or (path[2] or "src") not in known_words() else []
    return unknown


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_names_of_a_page_exist(page: Path) -> None:
    assert unknown_names(page.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    "planted", ["`plan_incremnt()`", "`kafka.sasl_mechanisms`", "`--full-refrsh`", "`iceberg/catalogs/`", "`.headrace/lgos/`"]
)
def test_planted_name_is_noticed(planted: str) -> None:
    assert unknown_names(f"A page names {planted} and `headrace`.") == [planted.strip("`")]
