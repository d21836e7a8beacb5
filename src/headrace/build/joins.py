"""Null-safe joins by keys, between DataFrames that may share a lineage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812

from headrace.spark.columns import named

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


MOST_BROADCAST = 100_000
"""The maximum number of rows that are broadcast regardless of Spark's estimate: Spark can't estimate how few rows of a table
have changed, and would sort the table that they are joined with. Broadcast rows pass through the driver's memory."""


def broadcast_few(rows: DataFrame, count: int) -> DataFrame:
    """Return rows with a broadcast hint if they are few; otherwise Spark decides by their size."""
    return F.broadcast(rows) if count <= MOST_BROADCAST else rows


def keep_matching(rows: DataFrame, others: DataFrame, columns: Sequence[str] | Mapping[str, str]) -> DataFrame:
    """Return the rows whose columns equal a row of the others. Pass `{column: other column}` if the names differ."""
    return _join(rows, others, columns, "left_semi")


def drop_matching(rows: DataFrame, others: DataFrame, columns: Sequence[str] | Mapping[str, str]) -> DataFrame:
    """Return the rows whose columns equal no row of the others."""
    return _join(rows, others, columns, "left_anti")


def equal_columns(pairs: Mapping[str, str]) -> Column:
    """Return the condition that columns, by name, are equal or both null."""
    return reduce(lambda a, b: a & b, (named(left).eqNullSafe(named(right)) for left, right in pairs.items()))


def _join(rows: DataFrame, others: DataFrame, columns: Sequence[str] | Mapping[str, str], how: str) -> DataFrame:
    pairs = columns if isinstance(columns, Mapping) else {name: name for name in columns}
    renamed = {left: f"__other_{index}" for index, left in enumerate(pairs)}
    values = others.select(*(named(right).alias(renamed[left]) for left, right in pairs.items()))
    return rows.join(values, equal_columns(renamed), how)
