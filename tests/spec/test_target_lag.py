"""`target_lag` in every place where it can be set. It never causes a rebuild."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.build.definition import definition_of
from headrace.spec import check_pipeline, load_pipeline
from headrace.spec.model.layers import LayerTable
from tests.support.folders import write_files

PIPELINE = """name: mine
about: Lags.
streams:
  events: {topic: events, format: json, schema: schemas/event.sql, table: raw.events}
"""
PYTHON = """from headrace import table


@table(keys=["id"], sequence_by="n")
def third(events):
    return events
"""
FILES = {
    "pipeline.yml": PIPELINE,
    "schemas/event.sql": "id LONG, n LONG",
    "shape/first.sql": "/*\nkeys: [id]\nsequence_by: n\n*/\nSELECT * FROM raw.events",
    "shape/second.sql": "SELECT * FROM raw.events",
    "shape/third.py": PYTHON,
}


def load(folder: Path, **files: str) -> tuple[LayerTable, ...]:
    changed = {name.replace("__", "/").replace("_dot_", "."): text for name, text in files.items()}
    write_files(folder / "pipelines" / "mine", {**FILES, **changed})
    return load_pipeline("mine", environ={}, folder=folder).tables


def test_target_lag_comes_from_the_table_or_the_pipeline(tmp_path: Path) -> None:
    assert [table.target_lag for table in load(tmp_path)] == [None, None, None]
    tables = load(
        tmp_path,
        pipeline_dot_yml=f"{PIPELINE}target_lag: 30s\n",
        shape__first_dot_sql="/*\nkeys: [id]\nsequence_by: n\ntarget_lag: 1 minute\n*/\nSELECT * FROM raw.events",
        shape__third_dot_py=PYTHON.replace('"n"', '"n", target_lag="0s"'),
    )
    assert [table.target_lag for table in tables] == [60.0, 30.0, 0.0]


def test_definition_excludes_target_lag(tmp_path: Path) -> None:
    before = [definition_of(table) for table in load(tmp_path)]
    after = load(
        tmp_path,
        pipeline_dot_yml=f"{PIPELINE}target_lag: 30s\n",
        shape__first_dot_sql="/*\nkeys: [id]\ntarget_lag: 1 minute\nsequence_by: n\n*/\nSELECT * FROM raw.events",
        shape__third_dot_py=PYTHON.replace('"n"', '"n", target_lag="1h"'),
    )
    assert [definition_of(table) for table in after] == before


@pytest.mark.parametrize(
    ("written", "file", "line"),
    [
        ("target_lag: soon\n", "pipeline.yml", 5),
        ("target_lag: [1 minute]\n", "pipeline.yml", 5),
        ("target_lag: 5 weeks\n", "shape/second.sql", 2),
        ("target_lag: -1s\n", "shape/second.sql", 2),
    ],
)
def test_invalid_target_lag_has_its_line(tmp_path: Path, written: str, file: str, line: int) -> None:
    text = f"{PIPELINE}{written}" if file == "pipeline.yml" else f"/*\n{written}*/\n{FILES[file]}"
    write_files(tmp_path / "pipelines" / "mine", {**FILES, file: text})
    (error,) = check_pipeline("mine", environ={}, folder=tmp_path).errors
    assert error.where.startswith(f"pipelines/mine/{file}:{line}"), error
