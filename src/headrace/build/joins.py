"""Joins by keys that treat nulls as equal, between DataFrames that may come from one another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812

from headrace.spark.columns import named

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


MOST_BROADCAST = 100_000
"""Up to how many rows are sent to every executor, whatever Spark estimates: it can't tell how few rows of a table have changed,
and would sort the table that they are looked up in. Rows that are broadcast go through the driver's memory."""


def broadcast_few(rows: DataFrame, count: int) -> DataFrame:
    """Return rows that a join broadcasts if they are few; else Spark decides by their size."""
    return F.broadcast(rows) if count <= MOST_BROADCAST else rows


def keep_matching(rows: DataFrame, others: DataFrame, columns: Sequence[str] | Mapping[str, str]) -> DataFrame:
    """Return the rows whose columns have the values of any of the others (`{mine: theirs}` where names differ)."""
    return _join(rows, others, columns, "left_semi")


def drop_matching(rows: DataFrame, others: DataFrame, columns: Sequence[str] | Mapping[str, str]) -> DataFrame:
    """Return the rows whose columns have the values of none of the others."""
    return _join(rows, others, columns, "left_anti")


def equal_columns(pairs: Mapping[str, str]) -> Column:
    """Return the condition that columns, by name, are equal or both null."""
    return reduce(lambda a, b: a & b, (named(mine).eqNullSafe(named(theirs)) for mine, theirs in pairs.items()))


def _join(rows: DataFrame, others: DataFrame, columns: Sequence[str] | Mapping[str, str], how: str) -> DataFrame:
    pairs = columns if isinstance(columns, Mapping) else {name: name for name in columns}
    renamed = {mine: f"__other_{index}" for index, mine in enumerate(pairs)}
    values = others.select(*(named(theirs).alias(renamed[mine]) for mine, theirs in pairs.items()))
    return rows.join(values, equal_columns(renamed), how)
