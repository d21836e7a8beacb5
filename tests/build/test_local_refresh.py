"""A refresh in memory writes the same rows and the same ledger entry as a refresh with Spark's scans."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from headrace.build.removed import removed_name
from headrace.iceberg.catalog.tables import load_table
from headrace.iceberg.files.live_files import LiveFiles
from headrace.iceberg.ledgers.build import BuildLedger, read_build
from headrace.spec.model.layers import BUILD_ID
from tests.build.layer_lake import AGGREGATES, CHECKED, TABLES, Event, LayerLake, Sent, assert_same
from tests.build.paths import scanned_refreshes
from tests.build.test_change_capture import TABLES as CAPTURED
from tests.build.test_change_capture import changes_of
from tests.build.test_one_truth import events_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

OF_EVERY_KIND = {**TABLES, **AGGREGATES, "a/checked.sql": CHECKED.format(on_failure="quarantine")}
OF_ONE_ATTEMPT = {"reads", "writer", "built_at_us", "snapshot_id", "seconds", "phases", "quarantine_files"}
"""What differs between two builds of the same rows."""


def entry_of(layer_lake: LayerLake, name: str) -> dict[str, Any]:
    entry = read_build(layer_lake.catalog.load_table(f"pond.{name}"))
    values = {field.name: getattr(entry, field.name) for field in fields(BuildLedger) if field.name not in OF_ONE_ATTEMPT}
    return {**values, "has_refused": bool(entry.quarantine_files)}


def kept_rows(layer_lake: LayerLake, name: str) -> Counter[str]:
    """Return what builds kept of deleted rows and truncates."""
    table = next(candidate.table for candidate in layer_lake.pipeline.tables if candidate.table.name == name)
    removed = load_table(layer_lake.catalog, removed_name(table))
    return Counter(repr(row) for row in removed.scan().to_arrow().to_pylist()) if removed else Counter()


@pytest.mark.parametrize(
    ("tables", "events"),
    [(OF_EVERY_KIND, events_of(Random(16), 40)), (CAPTURED, changes_of(Random(3), 60))],
    ids=["every kind", "captured changes"],
)
def test_refreshes_in_memory_and_on_scans_agree(
    tables: Mapping[str, str], events: Sequence[Sent], spark: SparkSession, tmp_path: Path
) -> None:
    local, scanned = (LayerLake(tmp_path / name, spark, tables) for name in ("local", "scanned"))
    for layer_lake in (local, scanned):
        layer_lake.land(events)
    local.build()
    with scanned_refreshes():
        scanned.build()
    assert_same(local.all_rows(), scanned.all_rows())
    for table in local.pipeline.tables:
        name = table.table.name
        assert entry_of(local, name) == entry_of(scanned, name), name
        assert kept_rows(local, name) == kept_rows(scanned, name), name


def test_refresh_in_memory_replaces_every_file(spark: SparkSession, tmp_path: Path) -> None:
    layer_lake = LayerLake(tmp_path, spark, {"a/latest.sql": TABLES["a/latest.sql"]})
    layer_lake.land([Event(f"e{number}", f"k{number}", "x", number, 100, "u", number) for number in range(20)])
    layer_lake.build()
    layer_lake.land([Event("late", "k3", "x", 99, 100, "u", 50)])
    layer_lake.build()  # deletes a row of the first file by its position
    before = layer_lake.rows("latest")
    assert any(file.deletes for file in LiveFiles().of(layer_lake.catalog.load_table("pond.latest"), None))
    layer_lake.build(full_refresh=True)
    table = layer_lake.catalog.load_table("pond.latest")
    (file,) = LiveFiles().of(table, None)
    assert not file.deletes
    assert set(table.scan().to_arrow()[BUILD_ID].to_pylist()) == {3}
    assert layer_lake.rows("latest") == before
    snapshot = table.current_snapshot()
    summary = snapshot.summary if snapshot else None
    assert summary
    assert (summary["total-data-files"], summary["total-delete-files"]) == ("1", "0")
