"""A release rebuilds a table of the pipelines that come with Headrace only on purpose."""

from __future__ import annotations

import json
from pathlib import Path

from headrace.build.plan import definition_of
from headrace.spec import load_pipeline
from headrace.spec.folders import list_pipelines

RECORDED = Path(__file__).with_name("definitions.json")
"""The digests before macros. Where a table's rows shall change, write its new digest here, and an entry in CHANGELOG.md."""


def test_every_table_has_the_definition_that_was_recorded(tmp_path: Path) -> None:
    found = {
        f"{folder.name} {table.table}": definition_of(table)
        for folder in list_pipelines(tmp_path)
        for table in load_pipeline(folder.name, environ={}, folder=tmp_path).tables
    }
    assert found == json.loads(RECORDED.read_text(encoding="utf-8"))


def test_null_spellings_are_written_in_macros_alone() -> None:
    for folder in ("payments", "commerce"):
        root = next(path.path for path in list_pipelines(Path("/nowhere")) if path.name == folder)
        tables = [path for path in root.rglob("*.sql") if path.name != "macros.sql"]
        assert [path.name for path in tables if "'undefined'" in path.read_text(encoding="utf-8")] == []
