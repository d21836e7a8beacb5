"""Call Java classes of Iceberg by their names."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from py4j.protocol import Py4JError

from headrace.spark.java_classes import iceberg_class

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def test_static_method_is_called_beside_another_method_of_its_name(spark: SparkSession) -> None:
    cache = iceberg_class(spark, "spark.SparkTableCache")
    methods = cache.get().getClass().getMethods()
    named = [str(method.toString()).split("(")[0].split() for method in methods if method.getName() == "get"]
    assert sorted("static" in words for words in named) == [False, True], "one with a key, and one that returns the cache"
    assert cache.get().size() == 0
    assert cache.get().equals(cache.get())


def test_java_class_call_creates_an_instance(spark: SparkSession) -> None:
    number = iceberg_class(spark, "types.Types$LongType").get()
    field = iceberg_class(spark, "types.Types$NestedField").optional(1, "id", number)
    assert str(iceberg_class(spark, "Schema")([field]).findField(1)) == "1: id: optional long"


def test_py4j_makes_an_array_of_a_class(spark: SparkSession) -> None:
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    assert len(gateway.new_array(iceberg_class(spark, "DeleteFile").for_py4j, 2)) == 2


@pytest.mark.parametrize(("name", "method"), [("spark.NoSuchClass", "get"), ("spark.SparkTableCache", "no_such_method")])
def test_java_class_missing_class_is_an_error(spark: SparkSession, name: str, method: str) -> None:
    with pytest.raises(Py4JError):
        getattr(iceberg_class(spark, name), method)()
