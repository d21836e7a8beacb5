"""Rows between Spark and Arrow, without pandas: Python functions over batches in Spark's tasks, and frames as DataFrames."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import polars as pl
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.udf import UserDefinedFunction
from pyspark.util import PythonEvalType

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

Batches = Iterable[pa.RecordBatch]


def map_batches(rows: DataFrame, function: Callable[[Batches], Batches], schema: StructType) -> DataFrame:
    """Gives back what a function makes of each part of the rows: it is called once for a part, with all its batches.

    `DataFrame.mapInArrow` makes the same calls, but asks for pandas, which neither it nor its worker then uses.
    """
    udf = UserDefinedFunction(function, schema, evalType=PythonEvalType.SQL_MAP_ARROW_ITER_UDF)
    called = udf(*(rows[f"`{name}`"] for name in rows.columns))
    return DataFrame(rows._jdf.mapInArrow(called._jc, False, None), rows.sparkSession)


def to_arrow(frame: pl.DataFrame, schema: StructType) -> pa.Table:
    """Gives back the columns of a schema as Spark has them in Arrow; polars has other types for text and lists."""
    return frame.select(schema.names).to_arrow(compat_level=pl.CompatLevel.oldest()).cast(to_arrow_schema(schema))


def to_spark(spark: SparkSession, frame: pl.DataFrame, schema: StructType) -> DataFrame:
    """Gives back the columns of a schema as rows for Spark."""
    return spark.createDataFrame(to_arrow(frame, schema) if frame.height else [], schema)
