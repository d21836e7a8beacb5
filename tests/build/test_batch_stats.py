"""Batch statistics of few rows in this process equal Spark's aggregates."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import ArrayType, StringType, StructType

from headrace.build.batch_stats import batch_stats_here, batch_stats_metrics, read_batch_stats
from headrace.build.events import deletes, truncates
from headrace.build.removed import DELETED, TRUNCATES
from headrace.iceberg.ledgers.build import BuildLedger
from headrace.spark.arrow import from_arrow, to_arrow
from headrace.spec.model.layers import LayerTable
from tests.build.layer_lake import LayerLake

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

SEED = 28
PLACES: dict[str, tuple[object, ...]] = {
    "string": (None, "", "a", "b", "ä", "\U0001f600", "\uffff", "1", "10", "9"),
    "long": (None, -1, 0, 9, 10, 2**62),
    "integer": (None, -5, 0, 7),
}
TABLE = """/*
keys: [id]
sequence_by: [at]
apply_as_deletes: op = 'd'
apply_as_truncates: op = 't'
unchanged: untold
except_column_list: [op, untold]
*/
SELECT id, CAST(id AS STRING) AS at, 'c' AS op, array('x') AS untold FROM pond.events"""


@pytest.fixture(scope="module")
def table(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> LayerTable:
    folder: Path = tmp_path_factory.mktemp("glance")
    return LayerLake(folder, spark, {"a/things.sql": TABLE}).lake.pipeline.tables[0]


@pytest.mark.parametrize("kind", PLACES)
def test_batch_stats_here_equal_spark(
    spark: SparkSession, table: LayerTable, kind: Literal["string", "long", "integer"]
) -> None:
    choose = random.Random(SEED)
    schema = StructType().add("id", "string").add("at", kind).add("op", "string").add("untold", ArrayType(StringType()))
    for _ in range(12):
        rows = [
            {
                "id": str(number),
                "at": choose.choice(PLACES[kind]),
                "op": choose.choice(("c", "d", "t", None)),
                "untold": choose.choice((None, [], ["x"])),
            }
            for number in range(choose.choice((0, 1, 5)))
        ]
        recorded = [None if place is None else str(place) for place in choose.choices(PLACES[kind], k=2)]
        entry = replace(BuildLedger(), truncated_at=recorded[0], deleted_at=recorded[1])
        frame = from_arrow(spark, pa.Table.from_pylist(rows, schema=to_arrow_schema(schema)), schema)
        frame = frame.withColumns({DELETED: deletes(table), TRUNCATES: truncates(table)})
        values = frame.agg(*batch_stats_metrics(table, frame, entry)).first()
        assert values is not None
        assert batch_stats_here(table, to_arrow(frame), entry) == read_batch_stats(values.asDict()), (rows, recorded)


def test_batch_stats_here_leave_other_sequences_to_spark(table: LayerTable) -> None:
    times = pa.table({"at": pa.array([0], pa.timestamp("us"))})
    assert batch_stats_here(table, times, BuildLedger()) is None
