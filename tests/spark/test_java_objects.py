"""Java objects are released without Python's garbage collector."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import TYPE_CHECKING
from weakref import ref

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from headrace.spark.arrow import collect_prepared, from_arrow, to_arrow
from headrace.spark.prepared_queries import make_placeholder

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

SCHEMA = StructType().add("id", "long")


@pytest.fixture(autouse=True)
def without_collector() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


def relation(spark: SparkSession) -> DataFrame:
    return from_arrow(spark, pa.table({"id": [1, 2, 3]}), SCHEMA)


def test_relation_of_a_prepared_query_is_released(spark: SparkSession) -> None:
    query = make_placeholder(spark, SCHEMA).frame.selectExpr("id + 1 AS next")
    rows = [relation(spark)]
    released = ref(rows[0]._jdf)
    assert collect_prepared(query, lambda number: rows[0])["next"].to_pylist() == [2, 3, 4]
    rows.clear()
    assert released() is None


def test_collected_frame_is_released(spark: SparkSession) -> None:
    rows = relation(spark).where("id > 1").coalesce(1)
    released = ref(rows._jdf)
    assert to_arrow(rows)["id"].to_pylist() == [2, 3]
    del rows
    assert released() is None


def test_java_object_has_no_magic_members(spark: SparkSession) -> None:
    java = relation(spark)._jdf
    assert not hasattr(java, "__array_interface__")
    assert java.count() == 3
