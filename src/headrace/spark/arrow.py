"""Convert rows between Spark and Arrow, with as few calls to Java as possible.

A build of few rows spends more time on calls than on rows. PySpark's own conversions make 20 and 13 calls: they read settings
that are constant here, and look up classes by name. Only this module uses the private API of PySpark behind them.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from weakref import WeakSet

import pyarrow as pa
from pyspark.errors.exceptions.captured import unwrap_spark_exception
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.pandas.serializers import ArrowCollectSerializer
from pyspark.sql.types import ArrayType, AtomicType, DataType, MapType, StructField, StructType
from pyspark.util import _load_from_socket

from headrace.spark.active_session import use_session
from headrace.spark.columns import named
from headrace.spark.java_classes import java_class
from headrace.spark.prepared_queries import bind, derive, run_here
from headrace.spark.schemas import schema_forms

_BATCH_ROWS = 10_000
"""The number of rows in an Arrow batch for Spark, as Spark's default (`spark.sql.execution.arrow.maxRecordsPerBatch`)."""

_ALL_OPTIONAL: WeakSet[DataFrame] = WeakSet()
"""The frames whose columns already have the types of `optional`. Comparing nested types takes longer than a small query."""


def from_arrow(spark: SparkSession, rows: pa.Table, schema: StructType) -> DataFrame:
    """Return a DataFrame of the rows. Their types must equal `schema_forms(schema).arrow`, and the session's time zone must be
    UTC.

    As with `createDataFrame`, the session becomes this thread's active session, in which Spark looks up tables, functions and
    classes of added jars.
    """
    from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame

    context = spark.sparkContext
    if context._encryption_enabled:  # rows must not be written to disk unencrypted
        return spark.createDataFrame(rows, schema)
    use_session(spark)
    file, path = tempfile.mkstemp(dir=context._temp_dir)
    try:
        with os.fdopen(file, "wb") as stream, pa.ipc.new_stream(stream, rows.schema) as batches:
            batches.write_table(rows, max_chunksize=_BATCH_ROWS)
        java = java_class(spark, "org.apache.spark.sql.api.python.PythonSQLUtils")
        frame = java.toDataFrame(java.readArrowStreamFromFile(path), schema_forms(schema).json, spark._jsparkSession)
    finally:
        os.unlink(path)
    frame = ClassicDataFrame(frame, spark)
    frame._schema = schema
    return frame


def to_arrow(rows: DataFrame) -> pa.Table:
    """Collect rows as Arrow, with all nested fields optional.

    PySpark casts the collected rows to their own type, which pyarrow rejects for a null struct with a required field: "nulls in
    input cannot be viewed as non-nullable".
    """
    rows = with_optional_fields(rows)
    return _table_of(rows, _collect(rows))


def collect_prepared(rows: DataFrame, rows_of: Callable[[int], DataFrame]) -> pa.Table:
    """Collect the rows of a query on placeholders, as `to_arrow`, without a Spark job if the plan allows it."""
    rows = with_optional_fields(rows)
    context = rows.sparkSession.sparkContext
    if context._encryption_enabled:  # rows must not be written to disk unencrypted
        return to_arrow(bind(rows, rows_of))
    file, path = tempfile.mkstemp(dir=context._temp_dir)
    try:
        os.close(file)
        if not run_here(rows, rows_of, path):
            return to_arrow(bind(rows, rows_of))
        with open(path, "rb") as stream:
            streams = pa.BufferReader(stream.read())
    finally:
        os.unlink(path)
    batches: list[pa.RecordBatch] = []
    while streams.tell() < streams.size():
        batches += pa.ipc.open_stream(streams)
    return _table_of(rows, batches)


def _table_of(rows: DataFrame, batches: list[pa.RecordBatch]) -> pa.Table:
    """Return collected batches as a table with the Arrow types of the rows' schema."""
    schema = schema_forms(rows.schema).arrow
    return pa.Table.from_batches(batches).cast(schema) if batches else schema.empty_table()


def with_optional_fields(rows: DataFrame) -> DataFrame:
    """Return the rows with the column types of `optional`."""
    if rows in _ALL_OPTIONAL:
        return rows
    fields = rows.schema.fields
    if all(isinstance(field.dataType, AtomicType) or _optional(field.dataType) == field.dataType for field in fields):
        _ALL_OPTIONAL.add(rows)
        return rows
    return derive(rows, "optional", lambda rows: rows.select(*map(_optional_column, fields)))


def _collect(rows: DataFrame) -> list[pa.RecordBatch]:
    """Return the rows of all partitions, in partition order."""
    server = rows._jdf.collectAsArrowToPython()
    try:
        serializer = ArrowCollectSerializer()  # type: ignore[no-untyped-call]
        *batches, order = _load_from_socket((server[0], server[1]), serializer)
    finally:
        with unwrap_spark_exception():
            server[2].getResult()  # raises the query's error
    return [batches[number] for number in order]


def _optional_column(field: StructField) -> Column:
    column = named(field.name)
    kind = _optional(field.dataType)
    return column if kind == field.dataType else column.cast(kind).alias(field.name)


def optional(schema: StructType) -> StructType:
    """Return the schema with all columns and nested fields optional."""
    return StructType([StructField(field.name, _optional(field.dataType)) for field in schema.fields])


def _optional(kind: DataType) -> DataType:
    """Return the type with all struct fields, elements and map values optional."""
    if isinstance(kind, StructType):
        return StructType([StructField(field.name, _optional(field.dataType)) for field in kind.fields])
    if isinstance(kind, ArrayType):
        return ArrayType(_optional(kind.elementType), containsNull=True)
    if isinstance(kind, MapType):
        return MapType(kind.keyType, _optional(kind.valueType), valueContainsNull=True)
    return kind
