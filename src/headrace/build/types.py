"""Convert column types between Spark and the table specification."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as spark

from headrace.spark.columns import named
from headrace.spec.model.types import Array, ColumnType, Decimal, Map, Primitive, PrimitiveName, Struct
from headrace.spec.model.types import Column as SpecColumn

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_TO_SPARK: dict[str, spark.DataType] = {
    "boolean": spark.BooleanType(),
    "int": spark.IntegerType(),
    "long": spark.LongType(),
    "float": spark.FloatType(),
    "double": spark.DoubleType(),
    "date": spark.DateType(),
    "timestamp": spark.TimestampType(),
    "timestamp_ntz": spark.TimestampNTZType(),
    "string": spark.StringType(),
    "binary": spark.BinaryType(),
}
_FROM_SPARK: dict[type[spark.DataType], PrimitiveName] = {
    spark.BooleanType: "boolean",
    spark.ByteType: "int",
    spark.ShortType: "int",
    spark.IntegerType: "int",
    spark.LongType: "long",
    spark.FloatType: "float",
    spark.DoubleType: "double",
    spark.DateType: "date",
    spark.TimestampType: "timestamp",
    spark.TimestampNTZType: "timestamp_ntz",
    spark.StringType: "string",
    spark.CharType: "string",
    spark.VarcharType: "string",
    spark.BinaryType: "binary",
}


def spark_schema(columns: Sequence[SpecColumn]) -> spark.StructType:
    """Return the Spark schema of the columns, all of them nullable."""
    return spark.StructType([spark.StructField(column.name, _to_spark(column.type)) for column in columns])


def spec_columns(schema: spark.StructType) -> tuple[SpecColumn, ...]:
    """Return the specification's columns of a Spark schema. Raises ValueError for an unsupported type."""
    return tuple(SpecColumn(field.name, _from_spark(field.dataType, field.name)) for field in schema.fields)


def has_map(data_type: spark.DataType) -> bool:
    """Return whether a type contains a map, so that Spark can't compare its values."""
    if isinstance(data_type, spark.StructType):
        return any(has_map(field.dataType) for field in data_type.fields)
    if isinstance(data_type, spark.ArrayType):
        return has_map(data_type.elementType)
    return isinstance(data_type, spark.MapType)


def fit_columns(rows: DataFrame, schema: spark.StructType) -> dict[str, Column]:
    """Return the rows' columns by name, widened to the schema's types; missing columns are null."""
    have = {field.name: field.dataType for field in rows.schema.fields}
    return {
        field.name: _fit(named(field.name), have[field.name], field.dataType)
        if field.name in have
        else F.lit(None).cast(field.dataType)
        for field in schema.fields
    }


def _fit(column: Column, have: spark.DataType, wanted: spark.DataType) -> Column:
    if have.simpleString() == wanted.simpleString():
        return column
    if isinstance(have, spark.StructType) and isinstance(wanted, spark.StructType):
        kinds = {field.name: field.dataType for field in have.fields}
        fields = [
            _fit(column[field.name], kinds[field.name], field.dataType).alias(field.name)
            if field.name in kinds
            else F.lit(None).cast(field.dataType).alias(field.name)
            for field in wanted.fields
        ]
        return F.when(column.isNotNull(), F.struct(*fields))
    return column.cast(wanted)


def _to_spark(column_type: ColumnType) -> spark.DataType:
    if isinstance(column_type, Decimal):
        return spark.DecimalType(column_type.precision, column_type.scale)
    if isinstance(column_type, Struct):
        return spark_schema(column_type.columns)
    if isinstance(column_type, Array):
        return spark.ArrayType(_to_spark(column_type.element))
    if isinstance(column_type, Map):
        return spark.MapType(spark.StringType(), _to_spark(column_type.value))
    return _TO_SPARK[column_type.name]


def _from_spark(data_type: spark.DataType, name: str) -> ColumnType:
    if isinstance(data_type, spark.DecimalType):
        return Decimal(data_type.precision, data_type.scale)
    if isinstance(data_type, spark.StructType):
        return Struct(spec_columns(data_type))
    if isinstance(data_type, spark.ArrayType):
        return Array(_from_spark(data_type.elementType, name))
    if isinstance(data_type, spark.MapType) and isinstance(data_type.keyType, spark.StringType):
        return Map(_from_spark(data_type.valueType, name))
    primitive = _FROM_SPARK.get(type(data_type))
    if primitive is None:
        raise ValueError(f'column "{name}" is of type {data_type.simpleString()}, which tables don\'t support')
    return Primitive(primitive)
