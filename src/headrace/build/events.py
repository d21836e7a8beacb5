"""Rows as what they say of keys: a value, a deletion, the end of all that was before. Pure: DataFrame in, DataFrame out."""

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

OMITTED = "__untold"
"""The names of the columns whose value an event could not tell; null where it told all."""

EPOCH = "__epoch"
"""The first truncate after an event (`at`, `time`): what it says holds until then. Null where none came after it."""


def mark_events(table: LayerTable, rows: DataFrame) -> DataFrame:
    """Return the rows with what they say: `_tombstone`, `_truncates`, untold columns; without what the table leaves out."""
    marks = event_marks(table)
    if table.unchanged:
        marks[OMITTED] = named(table.unchanged)
    return rows.withColumns(marks).drop(*table.except_columns)


def event_marks(table: LayerTable) -> dict[str, Column]:
    """Return the columns that say what an event does to other rows: `_tombstone`, and `_truncates` where events can."""
    marks = {DELETED: deletes(table)}
    if table.apply_as_truncates:
        marks[TRUNCATES] = truncates(table)
    return marks


def deletes(table: LayerTable) -> Column:
    """Return the condition that a row of the query deletes its key."""
    return F.coalesce(F.expr(table.apply_as_deletes), F.lit(False)) if table.apply_as_deletes else F.lit(False)


def truncates(table: LayerTable) -> Column:
    """Return the condition that a row of the query says that all rows before it are gone."""
    return F.coalesce(F.expr(table.apply_as_truncates), F.lit(False)) if table.apply_as_truncates else F.lit(False)


def expectations_of(table: LayerTable) -> tuple[Expectation, ...]:
    """Return what is expected of rows: nothing of a truncate that is no row."""
    if not table.apply_as_truncates:
        return table.expectations
    no_key = " OR ".join(f"`{key}` IS NULL" for key in table.keys)
    exempt = f"(coalesce({table.apply_as_truncates}, false) AND ({no_key}))"
    return tuple(replace(each, that=f"{exempt} OR ({each.that})") for each in table.expectations)


def split_truncates(table: LayerTable, marked: DataFrame) -> tuple[DataFrame, DataFrame | None]:
    """Return the rows that are of a key, and the truncates among all: their sequence and time, in the table's columns.

    A truncate that has all its keys is a row, too.
    """
    if not table.apply_as_truncates:
        return marked, None
    has_key = reduce(lambda a, b: a & b, (named(key).isNotNull() for key in table.keys))
    rows = marked.where(~F.col(TRUNCATES) | has_key).drop(TRUNCATES)
    return rows, marked.where(F.col(TRUNCATES)).select(*(named(name) for name in truncate_columns(table)))


def truncate_columns(table: LayerTable) -> tuple[str, ...]:
    """Return the columns that a truncate is known by: where it stands, and when it was."""
    return tuple(dict.fromkeys((table.sequence_by[0], table.versioned_by)))


def with_epochs(table: LayerTable, events: DataFrame, found: Sequence[DataFrame]) -> DataFrame:
    """Return the events with the first truncate after each. `found` are truncates, in any order and any number of times.

    Only the first column of `sequence_by` is compared: those that follow tell events of one key apart, and a truncate has none.
    """
    at = named(table.sequence_by[0])
    time = named(table.versioned_by)
    if not found:
        return events.withColumn(EPOCH, F.lit(None).cast(_epoch_type(table, events)))
    every = reduce(lambda a, b: a.unionByName(b), found)
    gathered = every.agg(F.array_sort(F.collect_set(F.struct(at.alias("at"), time.alias("time")))).alias("__truncates"))
    later = F.filter(F.col("__truncates"), lambda each: F.coalesce(each["at"] > at, at.isNull()))
    return events.crossJoin(F.broadcast(gathered)).withColumn(EPOCH, F.array_min(later)).drop("__truncates")


def _epoch_type(table: LayerTable, events: DataFrame) -> str:
    at, time = events.schema[table.sequence_by[0]].dataType, events.schema[table.versioned_by].dataType
    return f"struct<at: {at.simpleString()}, time: {time.simpleString()}>"
