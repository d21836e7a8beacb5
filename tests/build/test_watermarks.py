"""`metadata.incremental_watermarks`: how far each table has read each input, and how many of its rows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headrace.build.watermarks import WATERMARKS
from tests.build.layer_lake import SCHEMA, TABLES, Event, LayerLake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

JOINED = "/*\nkeys: [id]\nsequence_by: n\n*/\nSELECT e.id, e.n, l.g FROM pond.events e LEFT JOIN pond.latest l ON l.k = e.k"


def test_records_processed_are_those_of_each_source(spark: SparkSession, tmp_path: Path) -> None:
    files = {"schemas/event.sql": SCHEMA, "a/latest.sql": TABLES["a/latest.sql"], "b/joined.sql": JOINED}
    layer_lake = LayerLake(tmp_path, spark, files)

    def build(*events: Event) -> dict[tuple[str, str], int]:
        layer_lake.land(events)
        layer_lake.build()
        rows = layer_lake.catalog.load_table(str(WATERMARKS)).scan().to_arrow().to_pylist()
        return {(row["pipeline_name"], row["source_table"]): row["records_processed"] for row in rows}

    latest, driver, lookup = (
        ("pond.latest", "pond.events"),
        ("pond.joined", "pond.events"),
        ("pond.joined", "pond.latest"),
    )
    assert build(*(Event(f"e{n}", f"k{n % 2}", "g", n, 1, "u", n) for n in range(3))) == {latest: 3, driver: 3, lookup: 2}
    assert build(*(Event(f"e{n}", "k1", "g", n, 1, "u", n) for n in (3, 4))) == {latest: 2, driver: 2, lookup: 1}
    assert build(Event("old", "k1", "g", 0, 1, "u", 0)) == {latest: 1, driver: 1, lookup: 0}
    layer_lake.build(full_refresh=True)
    rows = layer_lake.catalog.load_table(str(WATERMARKS)).scan().to_arrow().to_pylist()
    assert sorted(row["records_processed"] for row in rows) == [2, 6, 6]
