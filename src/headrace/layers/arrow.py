"""Frames as rows for Spark, without pandas."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl
from pyspark.sql.pandas.types import to_arrow_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


def to_spark(spark: SparkSession, frame: pl.DataFrame, schema: StructType) -> DataFrame:
    """Gives back the columns of a schema as rows for Spark; polars has other types for text and lists than Spark in Arrow."""
    if frame.is_empty():
        return spark.createDataFrame([], schema)
    rows = frame.select(schema.names).to_arrow(compat_level=pl.CompatLevel.oldest())
    return spark.createDataFrame(rows.cast(to_arrow_schema(schema)), schema)
