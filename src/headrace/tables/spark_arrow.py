"""Spark's rows as Arrow."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType

from headrace.tables.spark_columns import named


def to_arrow(rows: DataFrame) -> pa.Table:
    """Collect rows as Arrow, with every field inside a column optional.

    PySpark casts what it collected to a type that it has already, and pyarrow refuses that for a null struct with a required
    field: "nulls in input cannot be viewed as non-nullable".
    """
    fields = rows.schema.fields
    if all(_optional(field.dataType) == field.dataType for field in fields):
        return rows.toArrow()
    return rows.select(*map(_optional_column, fields)).toArrow()


def _optional_column(field: StructField) -> Column:
    column = named(field.name)
    kind = _optional(field.dataType)
    return column if kind == field.dataType else column.cast(kind).alias(field.name)


def optional(schema: StructType) -> StructType:
    """Return a schema with every column optional, and every field inside one."""
    return StructType([StructField(field.name, _optional(field.dataType)) for field in schema.fields])


def _optional(kind: DataType) -> DataType:
    """Return the type with every field of its structs, every element and every value optional."""
    if isinstance(kind, StructType):
        return StructType([StructField(field.name, _optional(field.dataType)) for field in kind.fields])
    if isinstance(kind, ArrayType):
        return ArrayType(_optional(kind.elementType), containsNull=True)
    if isinstance(kind, MapType):
        return MapType(kind.keyType, _optional(kind.valueType), valueContainsNull=True)
    return kind
