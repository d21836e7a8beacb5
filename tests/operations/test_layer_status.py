"""The status of layer tables without Spark: rows, builds, freshness, failures."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from rich.console import Console

from headrace.app.figures import list_layer_tables
from headrace.cli.render.status import show_status
from headrace.iceberg.catalog.tables import open_catalog
from headrace.iceberg.rows import row_store
from headrace.serving.figures import PipelineStatus, TableStatus
from tests.build.layer_lake import Event, LayerLake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

LATEST = """/*
keys: [k]
sequence_by: n
expect:
  there is a group: g IS NOT NULL
  the amount is positive: amount > 0
*/
SELECT k, n, g, amount FROM pond.events"""
GROUPS = """/*
keys: [g]
*/
SELECT g, count(*) AS keys FROM pond.latest WHERE g IS NOT NULL GROUP BY g"""


def status(layer_lake: LayerLake, *, now: datetime | None = None) -> list[TableStatus]:
    now = now or datetime.now(timezone.utc)
    catalog, row_cache = open_catalog(layer_lake.settings), layer_lake.settings.row_cache
    return list(list_layer_tables(catalog, layer_lake.pipeline, now=now, row_cache=row_cache))


def test_status_reports_rows_builds_delay_and_failures(tmp_path: Path, spark: SparkSession) -> None:
    layer_lake = LayerLake(tmp_path, spark, {"a/latest.sql": LATEST, "b/groups.sql": GROUPS})
    for table_status in status(layer_lake):
        assert (table_status.rows, table_status.build_id, table_status.last_build, table_status.behind_seconds) == (
            0,
            0,
            None,
            None,
        )
    started = datetime.now(timezone.utc)
    layer_lake.land([Event(f"e{number}", f"k{number}", "g" if number else None, 1, 100, "", number) for number in range(5)])
    layer_lake.build()
    built_at = status(layer_lake)[0].last_build
    assert built_at
    assert started <= built_at <= datetime.now(timezone.utc)
    latest, groups = status(layer_lake, now=built_at + timedelta(hours=1))
    assert (latest.table, latest.kind, latest.rows, latest.build_id) == ("pond.latest", "upsert", 5, 1)
    assert (groups.table, groups.kind, groups.rows, groups.build_id) == ("pond.groups", "aggregate", 1, 1)
    assert (latest.behind_seconds, groups.behind_seconds) == (0.0, 0.0)
    assert latest.expectations == 2
    assert latest.batch_seconds
    assert (latest.state, latest.bad_rows) == ("fresh", 1)
    assert latest.freshness_seconds == pytest.approx(3600)
    assert status(layer_lake, now=built_at + timedelta(seconds=1))[0].rate == pytest.approx(5 / 60)
    assert latest.rate == 0, "of the last minute"
    assert [(expectation.sentence, expectation.checked, expectation.failed) for expectation in latest.failing] == [
        ("there is a group", 5, 1)
    ]
    layer_lake.land([Event("e9", "k9", "g", 1, 100, "", 9)])
    latest, groups = status(layer_lake, now=datetime.now(timezone.utc) + timedelta(hours=1))
    assert latest.behind_seconds == pytest.approx(3600, abs=60)
    assert latest.state == "behind"
    assert groups.behind_seconds == latest.behind_seconds, "also by way of a table that is behind"
    assert (latest.rows, latest.build_id) == (5, 1)


def test_status_reports_the_phases_of_the_last_build(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    for most_rows in ("_FILE_IN_MEMORY_ROWS", "SMALL_ROWS"):  # small files are stored and indexed as large ones are
        monkeypatch.setattr(row_store, most_rows, 0)
    layer_lake = LayerLake(tmp_path, spark, {"a/latest.sql": LATEST, "b/groups.sql": GROUPS})
    for table_status in status(layer_lake):
        assert (
            table_status.phases,
            table_status.rows_in,
            table_status.rows_out,
            table_status.index_bytes,
            table_status.cached_row_bytes,
        ) == (None, None, None, 0, 0)
    layer_lake.land([Event(f"e{number}", f"k{number}", "g", 1, 100, "", number) for number in range(5)])
    (built, _) = layer_lake.build()
    latest, _ = status(layer_lake)
    assert built.built
    assert built.built.phases.commit
    assert latest.phases
    assert latest.phases.query > 0
    assert latest.phases.commit is None, "the first commit can't tell how long it takes"
    layer_lake.land([Event("e9", "k9", "g", 1, 100, "", 9), Event("e10", "k1", "g", 0, 100, "", 9)])
    layer_lake.build()
    latest, groups = status(layer_lake)
    for stored in (latest, groups):
        assert stored.phases
        assert stored.batch_seconds
        assert min(stored.phases.fetch, stored.phases.query, stored.phases.write) > 0
        assert stored.phases.fetch + stored.phases.query + stored.phases.write <= stored.batch_seconds
    assert latest.phases
    assert latest.phases.commit == built.built.phases.commit, "that of the build before"
    assert (latest.rows_in, latest.rows_out) == (2, 1), "an older event changes nothing"
    assert latest.index_bytes, "its rows were looked up by their keys"
    assert latest.cached_row_bytes
    assert latest.snapshots == 2
    assert latest.readable_since is not None
    print_status(latest)


def print_status(table: TableStatus) -> None:
    """Check that a terminal of 100 columns shows the phases of a table."""
    written = StringIO()
    now = datetime.now(timezone.utc)
    pipeline = PipelineStatus("pond", running=False, at=now, streams=(), tables=(table,))
    console = Console(file=written, width=100)
    show_status(console, [], [pipeline], broken={}, as_json=False, verbose=True)
    assert all(len(line) <= 100 for line in written.getvalue().splitlines())
    shown = written.getvalue().splitlines()
    header = next(line for line in shown if "last build of" in line)
    assert [name for name in ("fetch", "query", "write", "commit", "rows in", "rows out", "cached") if name not in header] == []
    row = shown[shown.index(header) + 2]
    assert table.phases
    assert f"{table.phases.query * 1000:,.0f} ms" in row
    console.file = StringIO()
    show_status(console, [], [pipeline], broken={}, as_json=False)
    assert "last build of" not in console.file.getvalue()
