"""Prune a table's files by the bounds of keys."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import AtomicType, BinaryType, BooleanType, DateType, StringType, TimestampNTZType, TimestampType

from headrace.iceberg.files.spark_files import JavaObject
from headrace.spark.columns import named
from headrace.spark.java_classes import iceberg_class
from headrace.spark.times import TIMESTAMP, TIMESTAMP_NTZ
from headrace.spec.model.layers import LayerTable

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType

Bounds = Mapping[str, tuple[Any, Any, bool]]
"""The minimum and maximum of a column, and whether it contains nulls."""


def key_bounds(keys: DataFrame, table: LayerTable) -> Bounds:
    """Return the bounds of the keys and constant columns, for pruning files."""
    names = _bounded(keys, table)
    columns: list[Column] = []
    for name in names:
        column = named(name)
        as_text = _as_text(keys.schema[name].dataType)
        columns += [
            as_text(F.min(column)).alias(f"__min_{name}"),
            as_text(F.max(column)).alias(f"__max_{name}"),
            F.coalesce(F.max(column.isNull()), F.lit(False)).alias(f"__null_{name}"),
        ]
    if not columns:
        return {}
    row = keys.agg(*columns).first()
    assert row is not None
    return {name: (row[f"__min_{name}"], row[f"__max_{name}"], bool(row[f"__null_{name}"])) for name in names}


def bounds_expression(spark: SparkSession, bounds: Bounds) -> JavaObject | None:
    """Return the Iceberg expression that matches the files which may hold a touched key."""
    expressions = iceberg_class(spark, "expressions.Expressions")
    expression = None
    for name, (least, greatest, has_null) in bounds.items():
        parts = []
        if least is not None:
            parts.append(
                getattr(expressions, "and")(
                    expressions.greaterThanOrEqual(name, least), expressions.lessThanOrEqual(name, greatest)
                )
            )
        if has_null or least is None:
            parts.append(expressions.isNull(name))
        either = parts[0] if len(parts) == 1 else getattr(expressions, "or")(*parts)
        expression = either if expression is None else getattr(expressions, "and")(expression, either)
    return expression


def _bounded(rows: DataFrame, table: LayerTable) -> list[str]:
    """Return the columns whose bounds prune files: string keys are spread over all files."""
    names = dict.fromkeys((*table.keys, *table.constant))
    kinds = {field.name: field.dataType for field in rows.schema.fields}
    return [
        name
        for name in names
        if isinstance(kinds.get(name), AtomicType)
        and not isinstance(kinds[name], (BinaryType, BooleanType))
        and (name in table.constant or not isinstance(kinds[name], StringType))
    ]


def _as_text(kind: DataType) -> Any:
    """Return the function that converts a column to values for Iceberg's expressions."""
    if isinstance(kind, TimestampType):
        return lambda column: F.date_format(column, TIMESTAMP)
    if isinstance(kind, TimestampNTZType):
        return lambda column: F.date_format(column, TIMESTAMP_NTZ)
    if isinstance(kind, DateType):
        return lambda column: column.cast("string")
    return lambda column: column
