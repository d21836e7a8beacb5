"""Arrow as rows for Spark, without pandas."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl
import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


def to_spark(spark: SparkSession, rows: pa.Table | pl.DataFrame, schema: StructType) -> DataFrame:
    """Gives back the columns of a schema as rows for Spark; polars has other types for text and lists than Spark in Arrow."""
    table = rows.to_arrow(compat_level=pl.CompatLevel.oldest()) if isinstance(rows, pl.DataFrame) else rows
    if not table.num_rows:
        return spark.createDataFrame([], schema)
    return spark.createDataFrame(table.select(schema.names).cast(to_arrow_schema(schema)), schema)
