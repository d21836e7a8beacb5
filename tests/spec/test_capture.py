"""The settings of a captured Postgres, and their errors with lines."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.spec import Check, check_pipeline
from headrace.spec.loading.scaffold import copy_pipeline
from headrace.spec.model.pipeline import Capture, Seeder
from tests.support.folders import write_files

FILES = {
    "pipeline.yml": """\
name: mine
about: a test
sources:
  postgres:
    database: shop
    url: ${MINE_URL:-}
    migrations: migrations
    connectors: connectors
    format: json
    seeder: {file: sources/seeder.py, port: 8000}
    stage: stage_tables.yaml
streams:
  events: {topic: events, format: json, schema: schemas/event.sql, table: raw.events}
""",
    "schemas/event.sql": "k STRING",
    "migrations/V1_1__create.sql": "CREATE TABLE a (id INT)",
    "migrations/V1_2__more.sql": "CREATE TABLE b (id INT)",
    "connectors/source.template.json": '{\n  "name": "source-mine",\n  "config": {"a": "${DATABASE_HOST}"}\n}\n',
    "sources/seeder.py": "app = None\n",
    "stage_tables.yaml": "tables: {}\n",
}
YAML, TEMPLATE = "pipeline.yml", "connectors/source.template.json"

# id: (file, text to replace, replacement, place of the error, message, next step)
MISTAKES: dict[str, tuple[str, str, str, str, str, str]] = {
    "unknown key": (YAML, "stage:", "stages:", f"{YAML}:11", 'unknown key "stages"', 'Did you mean "stage"?'),
    "no database": (YAML, "    database: shop\n", "", f"{YAML}:4", 'has no "database"', "Add a line such as database: shop"),
    "database": (YAML, "shop", "Shop", f"{YAML}:5", '"Shop" is not a valid name', "Use lower-case"),
    "url": (YAML, "${MINE_URL:-}", "http://db", f"{YAML}:6", '"url" is not a valid Postgres URL', "Write it as postgresql://"),
    "password": (
        YAML,
        "${MINE_URL:-}",
        "postgresql://me:hidden@db/shop",
        f"{YAML}:6",
        "secrets must come from the environment",
        "Remove the password",
    ),
    "no such folder": (
        YAML,
        "migrations: migrations",
        "migrations: migration",
        f"{YAML}:7",
        'not found: folder "migration"',
        "Create it",
    ),
    "folder elsewhere": (
        YAML,
        "connectors: connectors",
        "connectors: ../x",
        f"{YAML}:8",
        "is outside the pipeline's folder",
        "Copy the folder into the folder",
    ),
    "no connectors": (YAML, "    connectors: connectors\n", "", f"{YAML}:4", 'has no "connectors"', "Add a line such as"),
    "no template": (
        YAML,
        "connectors: connectors",
        "connectors: schemas",
        f"{YAML}:8",
        "has no *.template.json",
        "Add a template",
    ),
    "format": (
        YAML,
        "format: json\n    s",
        "format: xml\n    s",
        f"{YAML}:9",
        'invalid value "xml" for "format"',
        "Choices are: avro",
    ),
    "seeder": (YAML, "seeder.py", "seedr.py", f"{YAML}:10", 'not found: file "sources/seedr.py"', "Create it"),
    "seeder's port": (YAML, ", port: 8000", "", f"{YAML}:10", 'has no "port"', "Add a line such as port: 8000"),
    "stage": (YAML, "stage_tables.yaml", "stage.yaml", f"{YAML}:11", 'not found: file "stage.yaml"', "Create it"),
    "template": (TEMPLATE, '"source-mine",', '"source-mine"', f"{TEMPLATE}:3", "not valid JSON", "Fix the line"),
    "unknown variable": (TEMPLATE, "DATABASE_HOST", "DATABSE", f"{TEMPLATE}:3", "variable DATABSE is not set", "Set DATABSE"),
    "not a variable": (TEMPLATE, "DATABASE_HOST", "a b", f"{TEMPLATE}:3", '"${a b}" is not a valid variable', "Write ${NAME}"),
    "template's form": (TEMPLATE, '"name"', '"names"', f"{TEMPLATE}:1", "a connector template needs a name", 'Write {"name"'),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_files(tmp_path / "pipelines" / "mine", FILES)


def check(folder: Path, **environ: str) -> Check:
    return check_pipeline("mine", environ=environ, folder=folder.parents[1])


def test_capture_reads_all_settings(folder: Path) -> None:
    result = check(folder, MINE_URL="postgresql://me:hidden@db:5433/other")
    assert [str(error) for error in result.errors] == []
    assert result.pipeline is not None
    capture = result.pipeline.capture
    assert capture == Capture(
        "shop",
        folder / "connectors",
        "postgresql://me:hidden@db:5433/other",
        folder / "migrations",
        "json",
        Seeder(folder / "sources/seeder.py", 8000),
        folder / "stage_tables.yaml",
    )
    assert "hidden" not in repr(capture)


def test_capture_has_optional_settings(folder: Path) -> None:
    left_out = ("url", "migrations", "format: json\n    s", "seeder", "stage")
    text = FILES[YAML]
    for line in text.splitlines(keepends=True)[5:11]:
        text = text if line.lstrip().startswith("connectors") else text.replace(line, "", 1)
    assert not any(name in text for name in left_out)
    (folder / YAML).write_text(text, encoding="utf-8")
    result = check(folder)
    assert result.pipeline is not None
    assert result.pipeline.capture == Capture("shop", folder / "connectors")


@pytest.mark.parametrize("name", MISTAKES)
def test_capture_reports_an_error_with_its_line(folder: Path, name: str) -> None:
    file, old, new, where, what, fix = MISTAKES[name]
    text = (folder / file).read_text(encoding="utf-8")
    assert old in text
    (folder / file).write_text(text.replace(old, new, 1), encoding="utf-8")
    errors = check(folder).errors
    assert [(error.where.removeprefix("pipelines/mine/"), what in error.what) for error in errors] == [(where, True)], errors
    assert errors[0].next_step.startswith(fix), errors[0]
    assert errors[0].next_step.endswith("then run: headrace check mine")
    assert "hidden" not in str(errors[0])


def test_copied_capture_has_its_own_database_and_port(folder: Path) -> None:
    copied = copy_pipeline("mine", target_name="other", folder=folder.parents[1])
    text = (copied / YAML).read_text(encoding="utf-8")
    copied_pipeline = check_pipeline("other", environ={}, folder=folder.parents[1]).pipeline
    assert copied_pipeline is not None
    assert copied_pipeline.capture is not None
    assert (copied_pipeline.capture.database, copied_pipeline.capture.seeder) == (
        "other_shop",
        Seeder(copied / "sources/seeder.py", 8001),
    )
    assert "url: ${OTHER_URL:-}" in text


@pytest.mark.parametrize(
    ("name", "what"), [("V3_create.sql", "is not a valid migration name"), ("V1_01__again.sql", "have the same version")]
)
def test_migration_names_are_checked(folder: Path, name: str, what: str) -> None:
    (folder / "migrations" / name).write_text("SELECT 1", encoding="utf-8")
    (error,) = check(folder).errors
    assert what in error.what
    assert error.where == f"pipelines/mine/{YAML}:7"
