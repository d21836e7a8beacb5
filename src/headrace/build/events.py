"""Interpret rows as events: upserts, deletes and truncates. Pure: DataFrame in, DataFrame out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812

from headrace.build.removed import DELETED, TRUNCATES
from headrace.spark.columns import named
from headrace.spec.model.layers import Expectation, LayerTable

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

OMITTED = "__omitted"
"""The names of the columns whose values an event omits; null if it contains all."""

EPOCH = "__epoch"
"""The first truncate after an event (`at`, `time`), which ends the event's validity; null if there is none."""


def mark_events(table: LayerTable, rows: DataFrame) -> DataFrame:
    """Add `_tombstone`, `_truncates` and the omitted columns to the rows, and drop the table's excluded columns."""
    marks = event_marks(table)
    if table.unchanged:
        marks[OMITTED] = named(table.unchanged)
    return rows.withColumns(marks).drop(*table.except_columns)


def event_marks(table: LayerTable) -> dict[str, Column]:
    """Return the columns that mark deletes and truncates: `_tombstone`, and `_truncates` if the table declares truncates."""
    marks = {DELETED: deletes(table)}
    if table.apply_as_truncates:
        marks[TRUNCATES] = truncates(table)
    return marks


def deletes(table: LayerTable) -> Column:
    """Return the condition that a row of the query deletes its key."""
    return F.coalesce(F.expr(table.apply_as_deletes), F.lit(False)) if table.apply_as_deletes else F.lit(False)


def truncates(table: LayerTable) -> Column:
    """Return the condition that a row of the query truncates the table: all rows before it are removed."""
    return F.coalesce(F.expr(table.apply_as_truncates), F.lit(False)) if table.apply_as_truncates else F.lit(False)


def expectations_of(table: LayerTable) -> tuple[Expectation, ...]:
    """Return the table's expectations; truncates without a key are exempt."""
    if not table.apply_as_truncates:
        return table.expectations
    no_key = " OR ".join(f"`{key}` IS NULL" for key in table.keys)
    exempt = f"(coalesce({table.apply_as_truncates}, false) AND ({no_key}))"
    return tuple(replace(expectation, that=f"{exempt} OR ({expectation.that})") for expectation in table.expectations)


def split_truncates(table: LayerTable, marked: DataFrame) -> tuple[DataFrame, DataFrame | None]:
    """Return the rows with a key, and the truncates with their sequence and time, in the table's columns.

    A truncate that has all keys counts as a row, too.
    """
    if not table.apply_as_truncates:
        return marked, None
    has_key = reduce(lambda a, b: a & b, (named(key).isNotNull() for key in table.keys))
    rows = marked.where(~F.col(TRUNCATES) | has_key).drop(TRUNCATES)
    return rows, marked.where(F.col(TRUNCATES)).select(*(named(name) for name in truncate_columns(table)))


def truncate_columns(table: LayerTable) -> tuple[str, ...]:
    """Return the columns that identify a truncate: its sequence and its time."""
    return tuple(dict.fromkeys((table.sequence_by[0], table.versioned_by)))


def with_epochs(table: LayerTable, events: DataFrame, truncates: Sequence[DataFrame]) -> DataFrame:
    """Return the events with the first truncate after each. `truncates` may be unordered and contain duplicates.

    Only the first column of `sequence_by` is compared: the others order events of one key, and a truncate has no key.
    """
    at = named(table.sequence_by[0])
    time = named(table.versioned_by)
    if not truncates:
        return events.withColumn(EPOCH, F.lit(None).cast(_epoch_type(table, events)))
    every = reduce(lambda a, b: a.unionByName(b), truncates)
    gathered = every.agg(F.array_sort(F.collect_set(F.struct(at.alias("at"), time.alias("time")))).alias("__truncates"))
    later = F.filter(F.col("__truncates"), lambda truncate: F.coalesce(truncate["at"] > at, at.isNull()))
    return events.crossJoin(F.broadcast(gathered)).withColumn(EPOCH, F.array_min(later)).drop("__truncates")


def _epoch_type(table: LayerTable, events: DataFrame) -> str:
    at, time = events.schema[table.sequence_by[0]].dataType, events.schema[table.versioned_by].dataType
    return f"struct<at: {at.simpleString()}, time: {time.simpleString()}>"
