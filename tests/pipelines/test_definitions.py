"""A release rebuilds a table of the pipelines that come with Headrace only on purpose."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from headrace.build.definition import definition_of
from headrace.build.legacy_definition import legacy_digest
from headrace.spec import load_pipeline
from headrace.spec.loading.folders import list_pipelines
from headrace.spec.model.layers import LayerTable

LEGACY = Path(__file__).with_name("definitions.json")
"""The digests that builds of 0.1 recorded. Where a table's rows shall change, write its new digests here and in `RECORDED`, and
an entry in CHANGELOG.md. Where only an upgrade of sqlglot changes them, the tables would be built again: don't upgrade."""

RECORDED = Path(__file__).with_name("definition_digests.json")
"""The digests that builds record now."""


def _tables(folder: Path) -> Iterator[tuple[str, LayerTable]]:
    for listed in list_pipelines(folder):
        for table in load_pipeline(listed.name, environ={}, folder=folder).tables:
            yield f"{listed.name} {table.table}", table


def test_every_table_has_the_definition_that_was_recorded(tmp_path: Path) -> None:
    digests = {name: legacy_digest(table) for name, table in _tables(tmp_path)}
    assert digests == json.loads(LEGACY.read_text(encoding="utf-8"))


def test_every_table_has_the_digest_that_was_recorded(tmp_path: Path) -> None:
    digests = {name: definition_of(table).digest for name, table in _tables(tmp_path)}
    assert digests == json.loads(RECORDED.read_text(encoding="utf-8"))


def test_null_spellings_are_written_in_macros_alone() -> None:
    for folder in ("payments", "commerce"):
        root = next(path.path for path in list_pipelines(Path("/nowhere")) if path.name == folder)
        tables = [path for path in root.rglob("*.sql") if path.name != "macros.sql"]
        assert [path.name for path in tables if "'undefined'" in path.read_text(encoding="utf-8")] == []
