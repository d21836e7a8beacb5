"""Rewriting a file with several row groups keeps all of its rows."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from tests.build.layer_lake import START, LayerLake
from tests.build.paths import scanned_refreshes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

TABLE = "/*\nkeys: [id]\nsequence_by: n\nconstant: [at]\n*/\nSELECT id, n, at FROM pond.events"
SMALL = {
    "write.parquet.row-group-size-bytes": "2000",
    "write.parquet.row-group-check-min-record-count": "100",
    "write.parquet.row-group-check-max-record-count": "100",
}


@dataclass(frozen=True)
class Numbered:
    number: int
    n: int

    def row(self) -> dict[str, Any]:
        nothing = dict.fromkeys(("amount", "op", "tags"))
        return {
            "id": f"{self.number:05}",
            "k": "k",
            "g": "g",
            "n": self.n,
            "at": START + timedelta(hours=self.number),
            **nothing,
        }


def test_change_of_one_row_keeps_those_of_other_row_groups(spark: SparkSession, tmp_path: Path) -> None:
    layer_lake = LayerLake(tmp_path, spark, {"a/by_event.sql": TABLE})
    layer_lake.land([Numbered(0, 1)])
    layer_lake.build()
    with layer_lake.catalog.load_table("pond.by_event").transaction() as transaction:
        transaction.set_properties(SMALL)
    layer_lake.land([Numbered(number, 1) for number in range(1, 1_000)])
    with scanned_refreshes():  # Spark writes several row groups into a file
        layer_lake.build(full_refresh=True)
    paths = layer_lake.catalog.load_table("pond.by_event").inspect.files()["file_path"].to_pylist()
    assert max(pq.ParquetFile(path.removeprefix("file:")).metadata.num_row_groups for path in paths) > 1
    layer_lake.land([Numbered(7, 2)])
    layer_lake.build()
    rows = layer_lake.catalog.load_table("pond.by_event").scan().to_arrow().to_pylist()
    assert {row["id"]: row["n"] for row in rows} == {f"{number:05}": 2 if number == 7 else 1 for number in range(1_000)}
    assert len(rows) == 1_000
