"""The "Coming from" pages name everything of the systems that Headrace replaces, and counterparts that exist."""

from __future__ import annotations

import fnmatch
import re
from functools import cache
from pathlib import Path

import pytest
import yaml

from headrace.settings import SETTING_SPECS
from headrace.spec import Pipeline, load_pipeline
from headrace.spec.loading.folders import BUILT_IN
from tests.docs.blocks import DOCS, ROOT
from tests.docs.test_code_blocks import OWN_TABLES, TARGETS, parse_command, tables_of
from tests.docs.test_names import PACKAGE, known_words, unknown_names

LIST = yaml.safe_load(Path(__file__).with_name("replaced_systems.yaml").read_text(encoding="utf-8"))
PAIRS = [(page, str(name), str(counterpart)) for page, names in LIST.items() for name, counterpart in names.items()]
NONE = "-"
SAME = ("the same", "the same names and columns")
CODE = re.compile(r"`([^`]+)`")
WORD = re.compile(r"[A-Za-z_]\w*")


def text_of(page: str) -> str:
    return DOCS.joinpath("coming-from", f"{page}.md").read_text(encoding="utf-8")


def rows_of(page: str) -> list[tuple[str, str]]:
    """Return the rows of the tables of a page: the first cell, and all others."""
    rows = [line.strip("| ").split(" | ", 1) for line in text_of(page).splitlines() if line.startswith("| ")]
    return [(first, rest) for first, rest in rows]


@cache
def ports() -> frozenset[str]:
    """Return the ports of the embedded servers, of the pipelines and of the compose file."""
    files = [ROOT / "compose.yaml", *BUILT_IN.glob("*/pipeline.yml"), PACKAGE / "cli" / "commands" / "queries.py"]
    defaults = {str(spec.default) for spec in SETTING_SPECS if spec.name.endswith(".port")}
    return frozenset(defaults | {port for file in files for port in re.findall(r"\d{4,5}", file.read_text(encoding="utf-8"))})


@cache
def pipeline_of(page: str) -> Pipeline:
    return load_pipeline(page, environ={}, folder=BUILT_IN)


def exists(counterpart: str, page: str) -> bool:
    """Return whether there is a command, make target, port, table, file or name of this kind in Headrace."""
    kind, _, rest = counterpart.partition(" ")
    if kind == "headrace":
        parse_command(rest.split(), strict=False)
        return True
    if kind == "make":
        return rest in TARGETS
    if counterpart.isdecimal():
        return counterpart in ports()
    tables = {*tables_of(pipeline_of(page)), *OWN_TABLES}
    if counterpart in SAME or fnmatch.filter(tables, counterpart.replace("<table>", "*")):
        return True
    if counterpart.rpartition(".")[0] in {table.rpartition(".")[0] for table in tables}:
        return False
    if "/" in counterpart and not counterpart.startswith((".", "/")):
        folders = (PACKAGE, BUILT_IN / page, ROOT / "src" / "headrace")
        return any(any(folder.glob(counterpart.rstrip("/"))) for folder in folders)
    return set(WORD.findall(counterpart)) <= known_words()


@pytest.mark.parametrize(("page", "name", "counterpart"), PAIRS, ids=lambda part: part.replace("/", " "))
def test_name_has_a_counterpart_that_exists(page: str, name: str, counterpart: str) -> None:
    if counterpart == NONE:
        assert name in text_of(page)
        return
    rows = [(first, rest) for first, rest in rows_of(page) if name in first]
    assert rows, f"docs/coming-from/{page}.md has no row for {name}"
    stated = counterpart.removeprefix("make ") if counterpart.startswith("make ") else counterpart
    assert any(stated in rest for _, rest in rows), f"{name}: {counterpart}"
    assert exists(counterpart, page)


@pytest.mark.parametrize("page", LIST)
def test_names_on_our_side_exist(page: str) -> None:
    for _, rest in rows_of(page):
        assert [name for name in unknown_names(rest) if not exists(name, page)] == [], rest


@pytest.mark.parametrize(
    "planted", ["make generate-chargs", "9999", "raw.shopify_order", "sources/logs.py", "headrace sttaus", "stg_strip_charges"]
)
def test_counterpart_that_does_not_exist_is_noticed(planted: str) -> None:
    with pytest.raises(AssertionError):
        assert exists(planted, "commerce")
