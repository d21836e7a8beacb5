"""`snapshots_for` in every place where it can be set. It never causes a rebuild."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.build.definition import definition_of
from headrace.operations.maintain.maintaining import targets_of
from headrace.settings import load_settings
from headrace.spec import Pipeline, check_pipeline, load_pipeline
from tests.support.folders import write_files

STREAM = "events: {topic: events, format: json, schema: schemas/event.sql, table: raw.events"
PIPELINE = f"name: mine\nabout: Retention.\nstreams:\n  {STREAM}}}\n"
PYTHON = 'from headrace import table\n\n\n@table(keys=["id"], sequence_by="n")\ndef second(events):\n    return events\n'
SQL = "/*\nkeys: [id]\nsequence_by: n\n*/\nSELECT * FROM raw.events"
FILES = {"pipeline.yml": PIPELINE, "schemas/event.sql": "id LONG, n LONG", "shape/first.sql": SQL, "shape/second.py": PYTHON}
DECLARED = {
    "pipeline.yml": PIPELINE.replace("raw.events}", "raw.events, snapshots_for: 1h}"),
    "shape/first.sql": SQL.replace("keys:", "snapshots_for: 90 days\nkeys:"),
    "shape/second.py": PYTHON.replace('"n"', '"n", target_lag="1s", snapshots_for="7d"'),
}


def load(folder: Path, files: dict[str, str]) -> Pipeline:
    write_files(folder / "pipelines" / "mine", {**FILES, **files})
    return load_pipeline("mine", environ={}, folder=folder)


def test_snapshots_for_reaches_maintenance(tmp_path: Path) -> None:
    settings = load_settings(flags={}, environ={}, folder=tmp_path)

    def retention(files: dict[str, str]) -> dict[str, float | None]:
        targets = targets_of(settings, load(tmp_path, files))
        return {str(target.name): target.snapshots_for for target in targets if target.removed_of is None}

    assert set(retention({}).values()) == {None}
    assert retention(DECLARED) == {"raw.events": 3_600.0, "shape.first": 90 * 86_400.0, "shape.second": 7 * 86_400.0}


def test_definition_excludes_snapshots_for(tmp_path: Path) -> None:
    before = [definition_of(table) for table in load(tmp_path, {}).tables]
    assert [definition_of(table) for table in load(tmp_path, DECLARED).tables] == before


@pytest.mark.parametrize("value", ["soon", "0s", "[7 days]"])
@pytest.mark.parametrize(("file", "line"), [("pipeline.yml", 4), ("shape/first.sql", 2)])
def test_invalid_retention_has_its_line(tmp_path: Path, value: str, file: str, line: int) -> None:
    text = DECLARED[file].replace("snapshots_for: 1h", f"snapshots_for: {value}").replace("90 days", value)
    write_files(tmp_path / "pipelines" / "mine", {**FILES, file: text})
    (error,) = check_pipeline("mine", environ={}, folder=tmp_path).errors
    assert error.where.startswith(f"pipelines/mine/{file}:{line}"), error
