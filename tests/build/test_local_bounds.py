"""A build holds few bytes in memory: beyond a limit it uses Spark's scans, with the same rows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from headrace.build import local_tables
from headrace.build.local_tables import LocalTables
from headrace.build.planned_inputs import NotLocalError
from headrace.iceberg.rows import row_sizes
from headrace.iceberg.rows.row_store import RowStore
from tests.build.layer_lake import TABLES, LayerLake, assert_same
from tests.build.paths import counted_paths
from tests.build.test_one_truth import events_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_reads_of_a_build_are_bounded_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_tables, "MOST_BYTES", 1_000)
    tables = LocalTables(None)  # type: ignore[arg-type]
    rows = pa.table({"n": pa.array(range(100), pa.int64())})
    assert tables.bounded(rows) is rows
    with pytest.raises(NotLocalError):
        tables.bounded(rows)


ONE_OF_A_KIND = (
    *("a/appended.sql", "a/latest.sql", "a/by_event.sql", "a/present.sql", "a/versions_with_deletes.sql"),
    *("b/groups.sql", "b/looked_up.sql", "b/rolling.sql"),
)
"""Rows that are appended, upserted, deleted and versioned, an aggregate, a lookup that is followed, and a window."""


@pytest.mark.spark
def test_build_beyond_the_bound_uses_scans(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    layer_lake = LayerLake(tmp_path, spark, {name: TABLES[name] for name in ONE_OF_A_KIND})
    events = events_of(Random(7), 30)
    layer_lake.land(events[:15])
    layer_lake.build()
    monkeypatch.setattr(local_tables, "MOST_BYTES", 100)
    layer_lake.land(events[15:])
    with counted_paths() as taken:
        layer_lake.build()
    assert taken["ScannedInputs"] > taken["LocalInputs"]
    by_parts = layer_lake.all_rows()
    layer_lake.build(full_refresh=True)
    assert_same(by_parts, layer_lake.all_rows())


@pytest.mark.spark
def test_build_whose_files_exceed_the_row_store_uses_scans(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    layer_lake = LayerLake(tmp_path, spark, {name: TABLES[name] for name in ("a/latest.sql", "b/groups.sql")})
    events = events_of(Random(7), 30)
    layer_lake.land(events[:15])
    layer_lake.build()
    layer_lake.land(events[15:])
    monkeypatch.setattr(row_sizes, "MEMORY_ROWS", 0)
    layer_lake.lake = replace(layer_lake.lake, store=RowStore(tmp_path / "rows", most_bytes=2_000))
    with counted_paths() as taken:
        layer_lake.build()
    assert taken == {"ScannedInputs": 2}
    assert not list((tmp_path / "rows").rglob("*.arrow"))
    by_parts = layer_lake.all_rows()
    layer_lake.build(full_refresh=True)
    assert_same(by_parts, layer_lake.all_rows())
