"""The driver columns that determine where rows of a touched key can be."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.build.pruning import KeySource, driver_decides, key_sources
from headrace.spec import check_pipeline
from tests.support.folders import write_files

FILES = {
    "pipeline.yml": """\
name: mine
about: a test
streams:
  events: {topic: t, format: json, schema: schemas/event.sql, table: raw.events}
""",
    "schemas/event.sql": "k STRING, at TIMESTAMP, seen TIMESTAMP",
}


@pytest.mark.parametrize(
    ("key", "sources"),
    [
        ("at", [KeySource("w", ("at",), None)]),
        ("date_trunc('minute', at)", [KeySource("w", ("at",), "MINUTE")]),
        ("date_trunc('minute', coalesce(at, seen))", [KeySource("w", ("at", "seen"), "MINUTE")]),
        (
            "date_trunc('hour', coalesce(at, seen, kafka_timestamp))",
            [KeySource("w", ("at", "seen", "kafka_timestamp"), "HOUR")],
        ),
        ("date_trunc('minute', coalesce(at, current_timestamp()))", []),
        ("date_trunc('minute', at + INTERVAL 1 DAY)", []),
        ("coalesce(at, seen)", []),
    ],
)
def test_key_sources_of_queries(tmp_path: Path, key: str, sources: list[KeySource]) -> None:
    query = f"/*\nkeys: [k, w]\n*/\nSELECT k, {key} AS w, count(*) AS n FROM raw.events GROUP BY k, {key}\n"
    write_files(tmp_path / "pipelines" / "mine", {**FILES, "core/counts.sql": query})
    check = check_pipeline("mine", environ={}, folder=tmp_path)
    assert check.pipeline is not None, check.errors
    (table,) = check.pipeline.tables
    assert list(key_sources(table)) == [KeySource("k", ("k",), None), *sources]


@pytest.mark.parametrize(
    ("query", "decides"),
    [
        (
            "SELECT e.k, max(r.at) w FROM raw.events e LEFT JOIN shape.rows r ON r.k = e.k WHERE e.at IS NOT NULL GROUP BY e.k",
            True,
        ),
        ("SELECT e.k, max(r.at) AS w FROM raw.events e JOIN shape.rows r ON r.k = e.k GROUP BY e.k", False),
        ("SELECT r.k, max(e.at) AS w FROM raw.events e LEFT JOIN shape.rows r ON r.k = e.k GROUP BY r.k", False),
        (
            "SELECT e.k, max(r.at) w FROM raw.events e LEFT JOIN shape.rows r ON r.k = e.k WHERE r.at IS NULL GROUP BY e.k",
            False,
        ),
        ("SELECT e.k, 1 AS w FROM raw.events e WHERE EXISTS (SELECT 1 FROM shape.rows r WHERE r.k = e.k)", False),
        ("SELECT e.k, 1 AS w FROM raw.events e LEFT ANTI JOIN shape.rows r ON r.k = e.k", False),
        ("SELECT e.k, 1 AS w FROM raw.events e LEFT SEMI JOIN shape.rows r ON r.k = e.k", False),
        ("SELECT k, 1 AS w FROM (SELECT * FROM raw.events) e LEFT JOIN shape.rows r USING (k)", False),
    ],
)
def test_driver_decides_of_queries(tmp_path: Path, query: str, *, decides: bool) -> None:
    latest = "/*\nkeys: [k]\nsequence_by: at\n*/\nSELECT k, at FROM raw.events\n"
    write_files(
        tmp_path / "pipelines" / "mine",
        {**FILES, "shape/rows.sql": latest, "shape/table.sql": f"/*\nkind: aggregate\nkeys: [k]\n*/\n{query}\n"},
    )
    pipeline = check_pipeline("mine", environ={}, folder=tmp_path).pipeline
    assert pipeline is not None
    (table,) = (table for table in pipeline.tables if table.table.name == "table")
    assert driver_decides(table) is decides
