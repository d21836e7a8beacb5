"""Read a captured Postgres from pipeline.yml: `sources: {postgres: {database: shop, connectors: connectors}}`."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import get_args

import yaml

from headrace.errors import SpecError
from headrace.spec.loading.document import Section, Value, read_text
from headrace.spec.loading.files import Files
from headrace.spec.loading.http import read_port
from headrace.spec.loading.keys import POSTGRES_KEYS
from headrace.spec.loading.names import read_identifier
from headrace.spec.loading.table_files import OTHER_FOLDERS
from headrace.spec.loading.variables import PATTERN, VariableError, fill_variables
from headrace.spec.model.pipeline import ByHand, Capture, CaptureFormat, Seeder
from headrace.spec.problems import Place, Problems

FORMATS: tuple[CaptureFormat, ...] = get_args(CaptureFormat)
TEMPLATE = ".template.json"
VARIABLES = ("PIPELINE", "TABLES", *(f"DATABASE_{part}" for part in ("HOST", "PORT", "NAME", "USER", "PASSWORD")))
"""The variables that Headrace fills in for a connector. All others come from the environment."""
MIGRATION = re.compile(r"V\d+(?:[._]\d+){1,2}__\w+\.sql")
_URL = re.compile(r"postgres(ql)?://[^/]*/?[^/?]*(\?.*)?", re.DOTALL)
_PASSWORD = re.compile(r"://[^/@]*:[^/@]+@|[?&]password=[^&]", re.IGNORECASE)


def read_capture(value: Value | None, *, files: Files, problems: Problems) -> Capture | None:
    """Return the Postgres that the pipeline captures, or None if it captures none. Errors are collected in `problems`."""
    section = value and problems.attempt(value.section, POSTGRES_KEYS, problems=problems)
    if not section:
        return None
    before, attempt = len(problems.errors), problems.attempt
    database = attempt(lambda: read_identifier(section.need("database", example="shop")))
    url = attempt(_read_url, section)
    migrations = attempt(_find_migrations, section, files=files)
    connectors = attempt(_find_connectors, section, files=files, problems=problems)
    message_format = attempt(_read_format, section)
    seeder = attempt(_read_seeder, section, files=files, problems=problems)
    stage = attempt(_find_stage, section, files=files)
    by_hand = attempt(_read_by_hand, section, problems=problems)
    if len(problems.errors) > before or not (database and connectors and message_format):
        return None
    return Capture(database, connectors, url, migrations, message_format, seeder, stage, by_hand)


def list_templates(folder: Path) -> tuple[Path, ...]:
    """Return the connector templates in a folder, by name."""
    return tuple(sorted(folder.glob(f"*{TEMPLATE}")))


def list_migrations(folder: Path) -> tuple[Path, ...]:
    """Return the migration files in a folder, by name."""
    return tuple(sorted(path for path in folder.iterdir() if not path.name.startswith(".")))


def _read_url(section: Section) -> str | None:
    """Return the URL of a database. Errors never show it, because it may contain a password."""
    value = section.find("url")
    if value is None:
        return None
    url = value.text(example="postgresql://user@host:5432/shop")
    if isinstance(value.node, yaml.ScalarNode) and _PASSWORD.search(PATTERN.sub("", value.node.value)):
        fix = "Remove the password and set PGPASSWORD, or put the whole URL in a variable: url: ${SHOP_URL:-}"
        raise value.error('"url" contains a password, and secrets must come from the environment', fix=fix)
    if url and not _URL.fullmatch(url):
        fix = "Write it as postgresql://user@host:5432/shop"
        raise value.error('"url" is not a valid Postgres URL', fix=fix)
    return url or None


def _find_migrations(section: Section, *, files: Files) -> Path | None:
    value = section.find("migrations")
    if value is None:
        return None
    folder = files.find_folder(value)
    if folder.parent == files.pipeline_folder and folder.name not in OTHER_FOLDERS:
        raise value.error(f'the SQL files in "{folder.name}" would be layer tables', fix="Rename the folder to migrations")
    versions: dict[tuple[int, ...], str] = {}
    for path in list_migrations(folder):
        if not MIGRATION.fullmatch(path.name):
            raise value.error(f'"{path.name}" is not a valid migration name', fix="Rename it, such as V1_1__create_tables.sql")
        version = tuple(map(int, re.split(r"[._]", path.name[1:].partition("__")[0])))
        if version in versions:
            raise value.error(
                f"{versions[version]} and {path.name} have the same version", fix="Give each migration its own version"
            )
        versions[version] = path.name
    return folder


def _find_connectors(section: Section, *, files: Files, problems: Problems) -> Path:
    value = section.need("connectors", example="connectors")
    folder = files.find_folder(value)
    templates = list_templates(folder)
    if not templates:
        raise value.error(
            f'folder "{value.text()}" has no *{TEMPLATE}', fix=f"Add a template, such as postgres-source{TEMPLATE}"
        )
    for path in templates:
        place = files.place(path, argument=value.place.argument)
        problems.attempt(read_template, path, place=place, environ=value.environ)
    return folder


def read_template(path: Path, *, place: Place, environ: Mapping[str, str]) -> Mapping[str, object]:
    """Return a connector's name and config from its template. A variable that can't be filled in raises a SpecError."""
    text = read_text(path, place=place)
    try:
        document = json.loads(text)
    except json.JSONDecodeError as error:
        raise place.error(f"not valid JSON: {error.msg}", line=error.lineno, fix="Fix the line") from None
    except RecursionError:
        raise place.error("the file is nested too deeply", line=1, fix="Write it with fewer levels") from None
    name = document.get("name") if isinstance(document, dict) else None
    config = document.get("config") if isinstance(document, dict) else None
    if not isinstance(name, str) or not isinstance(config, dict):
        raise place.error("a connector template needs a name and a config", line=1, fix='Write {"name": "…", "config": {…}}')
    filled = {**environ, **dict.fromkeys(VARIABLES, "")}
    for number, line in enumerate(text.splitlines(), start=1):
        try:
            fill_variables(line, filled)
        except VariableError as error:
            raise place.error(error.what, line=number, fix=error.fix) from None
    return {"name": name, "config": config}


def _read_format(section: Section) -> CaptureFormat:
    value = section.find("format")
    return Capture.format if value is None else value.choice(FORMATS)


def _read_seeder(section: Section, *, files: Files, problems: Problems) -> Seeder | None:
    value = section.find("seeder")
    if value is None:
        return None
    inner = value.section(("file", "port"), problems=problems)
    file = inner.need("file", example="sources/seeder.py")
    path = files.find(file)
    if path.suffix != ".py":
        raise file.error(f'"{file.text()}" is not a Python file', fix="Name a .py file")
    return Seeder(path, read_port(inner, example="8000"))


def _find_stage(section: Section, *, files: Files) -> Path | None:
    value = section.find("stage")
    return None if value is None else files.find(value)


def peek_stage(value: Value | None, *, files: Files) -> Path | None:
    """Return the file that `stage` names even if the section has errors, or None if there is no such file."""
    try:
        return None if value is None else files.find(value.at("stage"))
    except (KeyError, SpecError):
        return None


def _read_by_hand(section: Section, *, problems: Problems) -> ByHand | None:
    value = section.find("by_hand")
    if value is None:
        return None
    inner = value.section(("change", "see"), problems=problems)
    change = inner.need("change", example="UPDATE orders SET status = 'paid' WHERE id = 1")
    return ByHand(change.text().strip(), inner.need("see", example="SELECT status FROM shape.shop.orders").text().strip())
