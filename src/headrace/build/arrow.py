"""Pass Arrow and polars rows to Spark, without pandas."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl
import pyarrow as pa

from headrace.spark.arrow import from_arrow
from headrace.spark.schemas import schema_forms

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


def to_spark(spark: SparkSession, rows: pa.Table | pl.DataFrame, schema: StructType) -> DataFrame:
    """Return the schema's columns as a Spark DataFrame. Converts polars' Arrow types for text and lists to Spark's."""
    table = rows.to_arrow(compat_level=pl.CompatLevel.oldest()) if isinstance(rows, pl.DataFrame) else rows
    table = copy_maps(table.select(schema.names).combine_chunks())
    return from_arrow(spark, table.cast(schema_forms(schema).arrow), schema)


def copy_maps(rows: pa.Table) -> pa.Table:
    """Return rows that can be cast: pyarrow 25.0.1 crashes the process when it casts a map after filter or take."""
    if not any("map<" in str(field.type) for field in rows.schema):
        return rows
    written = pa.BufferOutputStream()
    with pa.ipc.new_stream(written, rows.schema) as stream:
        stream.write_table(rows)
    return pa.ipc.open_stream(written.getvalue()).read_all()
