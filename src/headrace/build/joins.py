"""Joins by keys that treat nulls as equal, between DataFrames that may come from one another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING

from headrace.tables.spark_columns import named

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def keep_matching(rows: DataFrame, others: DataFrame, columns: Sequence[str] | Mapping[str, str]) -> DataFrame:
    """Gives back the rows whose columns have the values of any of the others (`{mine: theirs}` where names differ)."""
    return _join(rows, others, columns, "left_semi")


def drop_matching(rows: DataFrame, others: DataFrame, columns: Sequence[str] | Mapping[str, str]) -> DataFrame:
    """Gives back the rows whose columns have the values of none of the others."""
    return _join(rows, others, columns, "left_anti")


def equal_columns(pairs: Mapping[str, str]) -> Column:
    """Gives back the condition that columns, by name, are equal or both null."""
    return reduce(lambda a, b: a & b, (named(mine).eqNullSafe(named(theirs)) for mine, theirs in pairs.items()))


def _join(rows: DataFrame, others: DataFrame, columns: Sequence[str] | Mapping[str, str], how: str) -> DataFrame:
    pairs = columns if isinstance(columns, Mapping) else {name: name for name in columns}
    renamed = {mine: f"__other_{index}" for index, mine in enumerate(pairs)}
    values = others.select(*(named(theirs).alias(renamed[mine]) for mine, theirs in pairs.items()))
    return rows.join(values, equal_columns(renamed), how)
