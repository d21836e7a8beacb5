"""The adapter between Spark and Arrow equals PySpark's own conversions, whose private API it uses."""

from __future__ import annotations

from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from headrace.spark.arrow import from_arrow, to_arrow

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

DDL = (
    "id STRING, n INT, big BIGINT, ratio DOUBLE, amount DECIMAL(18, 2), is_paid BOOLEAN, day DATE, at TIMESTAMP, "
    "local TIMESTAMP_NTZ, body BINARY, tags MAP<STRING, STRING>, items ARRAY<STRUCT<sku: STRING, count: INT>>"
)
ROW = {
    "id": "ä",
    "n": 7,
    "big": 2**40,
    "ratio": 0.5,
    "amount": Decimal("12.30"),
    "is_paid": True,
    "day": date(2026, 1, 2),
    "at": datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=timezone.utc),
    "local": datetime(2026, 1, 2, 3, 4, 5),
    "body": b"\x00\xff",
    "tags": [("a", "b"), ("c", None)],
    "items": [{"sku": "x", "count": None}, None],
}


def rows_of(count: int) -> tuple[pa.Table, StructType]:
    schema = StructType.fromDDL(DDL)
    assert isinstance(schema, StructType)
    rows = [{**ROW, "n": number} if number % 3 else dict.fromkeys(ROW) for number in range(count)]
    return pa.Table.from_pylist(rows, schema=to_arrow_schema(schema)), schema


@pytest.mark.parametrize("count", [0, 1, 25_000], ids=["none", "one", "several batches"])
def test_rows_come_back_as_pyspark_converts_them(spark: SparkSession, count: int) -> None:
    rows, schema = rows_of(count)
    frame = from_arrow(spark, rows, schema)
    assert frame.schema == schema
    assert to_arrow(frame).equals(frame.toArrow())
    assert to_arrow(frame).equals(rows)
    if count:
        assert to_arrow(frame).equals(spark.createDataFrame(rows, schema).toArrow())


def test_rows_larger_than_a_local_relation_come_back(spark: SparkSession) -> None:
    session = spark.newSession()
    session.conf.set("spark.sql.execution.arrow.localRelationThreshold", "1")
    rows, schema = rows_of(100)
    assert to_arrow(from_arrow(session, rows, schema).coalesce(1)).equals(rows)


def test_partitions_come_back_in_their_order(spark: SparkSession) -> None:
    numbers = to_arrow(spark.range(0, 1_000, 1, 7))
    assert numbers["id"].to_pylist() == list(range(1_000))


def test_error_of_a_query_is_pysparks(spark: SparkSession) -> None:
    with pytest.raises(PySparkException, match="no such thing"):
        to_arrow(spark.sql("SELECT raise_error('no such thing') AS n"))


def test_conversions_leave_no_temporary_files(spark: SparkSession) -> None:
    folder = Path(spark.sparkContext._temp_dir)
    before = set(folder.iterdir())
    from_arrow(spark, *rows_of(3))
    assert set(folder.iterdir()) == before
