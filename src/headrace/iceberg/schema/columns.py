"""Convert a pipeline's columns and partitioning to Iceberg's schema and partition spec, and back."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import count
from typing import Any

import pyarrow as pa
from pyiceberg.partitioning import PARTITION_FIELD_ID_START, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    TruncateTransform,
    YearTransform,
)
from pyiceberg.transforms import Transform as IcebergTransform
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
)

from headrace.spec.model.pipeline import Transform
from headrace.spec.model.types import Array, Column, ColumnType, Decimal, Map, Primitive, PrimitiveName, Struct

_PRIMITIVES: dict[PrimitiveName, IcebergType] = {
    "boolean": BooleanType(),
    "int": IntegerType(),
    "long": LongType(),
    "float": FloatType(),
    "double": DoubleType(),
    "date": DateType(),
    "timestamp": TimestamptzType(),
    "timestamp_ntz": TimestampType(),
    "string": StringType(),
    "binary": BinaryType(),
}


@lru_cache(maxsize=512)
def arrow_schema(columns: tuple[Column, ...]) -> pa.Schema:
    """Return the Arrow schema of `columns`."""
    return iceberg_schema(columns).as_arrow()


@lru_cache(maxsize=512)
def iceberg_schema(columns: tuple[Column, ...]) -> Schema:
    """Return the Iceberg schema of `columns`, with field ids counted from 1 in depth-first order."""
    ids = count(1)
    return Schema(*(_field(column, ids) for column in columns))


def spec_columns(schema: Schema) -> tuple[Column, ...]:
    """Return the pipeline columns of an Iceberg schema."""
    return tuple(_column(field) for field in schema.fields)


def partition_spec(transforms: tuple[Transform, ...], schema: Schema) -> PartitionSpec:
    """Return the partition spec, with the field names of Iceberg's Java library."""
    return PartitionSpec(
        *(
            PartitionField(
                source_id=schema.find_field(transform.column).field_id,
                field_id=PARTITION_FIELD_ID_START + index,
                transform=_transform(transform),
                name=transform.field_name,
            )
            for index, transform in enumerate(transforms)
        )
    )


def _field(column: Column, ids: Iterator[int]) -> NestedField:
    field_id = next(ids)
    return NestedField(field_id, column.name, _type(column.type, ids), required=column.required, doc=column.doc)


def _type(column_type: ColumnType, ids: Iterator[int]) -> IcebergType:
    if isinstance(column_type, Decimal):
        return DecimalType(column_type.precision, column_type.scale)
    if isinstance(column_type, Struct):
        return StructType(*(_field(column, ids) for column in column_type.columns))
    if isinstance(column_type, Array):
        return ListType(next(ids), _type(column_type.element, ids), element_required=False)
    if isinstance(column_type, Map):
        key_id, value_id = next(ids), next(ids)
        return MapType(key_id, StringType(), value_id, _type(column_type.value, ids), value_required=False)
    return _PRIMITIVES[column_type.name]


def _column(field: NestedField) -> Column:
    return Column(field.name, _column_type(field.field_type), required=field.required, doc=field.doc)


def _column_type(kind: IcebergType) -> ColumnType:
    if isinstance(kind, DecimalType):
        return Decimal(kind.precision, kind.scale)
    if isinstance(kind, StructType):
        return Struct(tuple(_column(field) for field in kind.fields))
    if isinstance(kind, ListType):
        return Array(_column_type(kind.element_type))
    if isinstance(kind, MapType):
        return Map(_column_type(kind.value_type))
    return Primitive(next(name for name, primitive in _PRIMITIVES.items() if primitive == kind))


def _transform(transform: Transform) -> IcebergTransform[Any, Any]:
    if transform.name == "bucket":
        return BucketTransform(transform.argument or 1)
    if transform.name == "truncate":
        return TruncateTransform(transform.argument or 1)
    plain: dict[str, IcebergTransform[Any, Any]] = {
        "identity": IdentityTransform(),
        "years": YearTransform(),
        "months": MonthTransform(),
        "days": DayTransform(),
        "hours": HourTransform(),
    }
    return plain[transform.name]
