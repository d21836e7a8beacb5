"""Reduce a change set to the rows that differ in the columns that a query reads."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl
import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from headrace.build.rows import ChangeSet, LocalRows, Rows, SparkRows
from headrace.spark.columns import named

_COUNT = "__count"
_ROW = "__row"


def net_rows(changes: ChangeSet, columns: Sequence[str]) -> Rows:
    """Return these columns of the rows that entered or left, without the rows that left as often as they entered.

    Rows are compared by these columns only. Spark can't compare maps: if one is among the columns, all rows are returned.
    """
    if changes.left is None or _has_map(_schema(changes.entered.select(columns))):
        return changes.both(columns)
    entered, left = changes.entered.select(columns), changes.left.select(columns)
    if isinstance(entered, LocalRows) and isinstance(left, LocalRows):
        return _net_locally(entered, left)
    counted = entered.frame.withColumn(_COUNT, F.lit(1)).unionByName(left.frame.withColumn(_COUNT, F.lit(-1)))
    net = counted.groupBy(*map(named, columns)).agg(F.sum(_COUNT).alias(_COUNT))
    return SparkRows(net.where(F.col(_COUNT) != 0).drop(_COUNT))


def _net_locally(entered: LocalRows, left: LocalRows) -> LocalRows:
    both = pa.concat_tables([entered.arrow, left.arrow.select(entered.columns)], promote_options="permissive")
    signs = [1] * entered.arrow.num_rows + [-1] * left.arrow.num_rows
    numbered = pl.DataFrame(both).with_columns(pl.Series(_COUNT, signs, pl.Int64)).with_row_index(_ROW)
    net = numbered.group_by(entered.columns).agg(pl.col(_COUNT).sum(), pl.col(_ROW).first()).filter(pl.col(_COUNT) != 0)
    return LocalRows(entered.spark, both.take(net[_ROW].sort().to_arrow()), entered.schema)


def _schema(rows: Rows) -> StructType:
    return rows.schema if isinstance(rows, LocalRows) else rows.frame.schema


def _has_map(kind: DataType) -> bool:
    if isinstance(kind, StructType):
        return any(_has_map(field.dataType) for field in kind.fields)
    if isinstance(kind, ArrayType):
        return _has_map(kind.elementType)
    return isinstance(kind, MapType)
