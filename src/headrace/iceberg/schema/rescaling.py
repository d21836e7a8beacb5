"""Replace columns whose decimals need a larger scale: Iceberg can't change a scale in place.

The new column has the old one's name and position, and a new field id: it is null in existing files. So it is added in the
commit of a refresh, which replaces all files. Older snapshots keep the old column.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyiceberg.table import Table
from pyiceberg.types import DecimalType, IcebergType, ListType, MapType, NestedField, StructType

from headrace.iceberg.files.spark_files import JavaObject
from headrace.iceberg.schema.columns import iceberg_schema, spec_columns
from headrace.iceberg.schema.widening import type_problems
from headrace.spark.java_classes import iceberg_class
from headrace.spec.model.types import Column

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def rescaled_columns(table: Table, columns: tuple[Column, ...]) -> tuple[Column, ...]:
    """Return the columns that need a larger decimal scale and can otherwise be widened.

    Columns in a partition spec are excluded.
    """
    schema = table.schema()
    partitioning = {field.source_id for spec in table.specs().values() for field in spec.fields}
    have = {field.name: field for field in schema.fields if field.field_id not in partitioning}
    wanted = iceberg_schema(columns)
    return tuple(
        column
        for column, field in zip(columns, wanted.fields, strict=True)
        if column.name in have and _needs_scale(have[column.name].field_type, field.field_type)
    )


def keep_scales(table: Table, columns: tuple[Column, ...]) -> tuple[Column, ...]:
    """Return `columns` with the table's own types for the columns that need replacement."""
    replaced = {column.name for column in rescaled_columns(table, columns)}
    have = {column.name: column for column in spec_columns(table.schema())}
    return tuple(have[column.name] if column.name in replaced else column for column in columns)


def replace_columns(
    spark: SparkSession, table: JavaObject, columns: tuple[Column, ...], *, transaction: JavaObject | None = None
) -> None:
    """Replace columns of a Java table with optional ones of these types, in the same positions. Without a transaction,
    commit."""
    if not columns:
        return
    types = iceberg_class(spark, "SchemaParser").fromJson(iceberg_schema(columns).model_dump_json())
    order = [str(field.name()) for field in table.schema().columns()]
    update = (table if transaction is None else transaction).updateSchema()
    for column in columns:
        update.deleteColumn(column.name).addColumn(column.name, types.findType(column.name))
    for column in columns:
        place = order.index(column.name)
        _ = update.moveAfter(column.name, order[place - 1]) if place else update.moveFirst(column.name)
    update.commit()


def _needs_scale(have: IcebergType, wanted: IcebergType) -> bool:
    rescaled = _with_scales(have, wanted)
    return rescaled != have and not type_problems(rescaled, wanted)


def _with_scales(have: IcebergType, wanted: IcebergType) -> IcebergType:
    """Return the type with the larger scale for each decimal in it."""
    if isinstance(have, DecimalType) and isinstance(wanted, DecimalType) and have.scale < wanted.scale:
        return wanted
    if isinstance(have, StructType) and isinstance(wanted, StructType):
        types = {field.name: field.field_type for field in wanted.fields}
        return StructType(*(_rescaled_field(field, types.get(field.name)) for field in have.fields))
    if isinstance(have, ListType) and isinstance(wanted, ListType):
        element = _with_scales(have.element_type, wanted.element_type)
        return ListType(have.element_id, element, element_required=have.element_required)
    if isinstance(have, MapType) and isinstance(wanted, MapType):
        value = _with_scales(have.value_type, wanted.value_type)
        return MapType(have.key_id, have.key_type, have.value_id, value, value_required=have.value_required)
    return have


def _rescaled_field(field: NestedField, wanted: IcebergType | None) -> NestedField:
    if wanted is None:
        return field
    return NestedField(field.field_id, field.name, _with_scales(field.field_type, wanted), field.required, field.doc)
