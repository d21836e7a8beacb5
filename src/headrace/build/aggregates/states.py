"""States of keys, as they are stored, and how those of changed rows are merged with them. Pure: DataFrames in and out.

A state is JSON in the column `_state`, and names the shape that it was written in. One of another shape, or none, is not read:
its key is computed again from its rows, and stored with a state that fits.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import DataType, DecimalType, LongType, StringType, StructField, StructType

from headrace.build.aggregates.algebra import Algebra
from headrace.spec.aggregates import StateField
from headrace.spec.layers import STATE
from headrace.tables.spark_columns import named
from headrace.tables.spark_times import EXACT_JSON

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

REDO = "__redo"
"""Whether a key has to be computed again from its rows."""

_SHAPE = "v"
_SIDE, _FITS = "__side", "__fits"
_OLD, _ADDED, _REMOVED = "__old", "__added", "__removed"


def with_state(algebra: Algebra, rows: DataFrame) -> DataFrame:
    """Return the table's rows with their states, out of what the algebra's query has given."""
    names = [named(name) for name, _ in algebra.decomposition.outputs]
    return rows.select(*names, _packed(algebra, algebra.fields_in(rows)))


def rows_of_states(algebra: Algebra, merged: DataFrame) -> DataFrame:
    """Return the rows that merged states give, with these states; a key that has no rows left has none."""
    shown = merged.where(F.col(algebra.rows) > 0)
    return shown.select(*algebra.outputs(), _packed(algebra, [F.col(field.name) for field in algebra.fields]))


def merge_states(
    algebra: Algebra, *, old: DataFrame, added: DataFrame, removed: DataFrame | None, knows_all: bool
) -> DataFrame:
    """Return keys and fields of every key that is added to or removed from, with `__redo` where they can't be merged.

    `old` has the table's keys and states, `added` and `removed` are what the algebra's query makes of changed rows. Without
    `knows_all`, a key that the table lacks may have rows nevertheless.
    """
    parts = [_old_states(algebra, old), _changes(algebra, added, _ADDED)]
    if removed is not None:
        parts.append(_changes(algebra, removed, _REMOVED))
    together = reduce(lambda a, b: a.unionByName(b), parts)
    sides = {side: F.col(_SIDE) == side for side in (_OLD, _ADDED, _REMOVED)}
    sums = [_added_up(field, algebra.types[field.name].dataType) for field in algebra.fields if field.merge == "add"]
    ends = [
        F.first(F.when(condition, F.col(field.name)), ignorenulls=True).alias(f"{side}_{field.name}")
        for field in algebra.fields
        if field.merge != "add"
        for side, condition in sides.items()
    ]
    counts = [F.count_if(condition).alias(side) for side, condition in sides.items()]
    fits = F.min(F.when(sides[_OLD], F.col(_FITS))).alias(_FITS)
    grouped = together.groupBy(*(named(key) for key in algebra.keys)).agg(*sums, *ends, *counts, fits)
    values = [_merged(algebra, field) for field in algebra.fields]
    return grouped.where((F.col(_ADDED) > 0) | (F.col(_REMOVED) > 0)).select(
        *(named(key) for key in algebra.keys), *values, _redo(algebra, knows_all=knows_all).alias(REDO)
    )


def _packed(algebra: Algebra, fields: list[Column]) -> Column:
    return F.to_json(F.struct(F.lit(algebra.shape).alias(_SHAPE), *fields), EXACT_JSON).alias(STATE)


def _old_states(algebra: Algebra, old: DataFrame) -> DataFrame:
    schema = StructType([StructField(_SHAPE, StringType()), *algebra.types.fields])
    read = old.withColumn(STATE, F.from_json(named(STATE), schema, EXACT_JSON))
    state = named(STATE)
    checks = [state[_SHAPE] == algebra.shape]
    for field in algebra.fields:
        if field.merge == "add" and not field.counted_by:
            checks.append(state[field.name].isNotNull())
        elif field.counted_by:
            checks.append((state[field.counted_by] > 0) == state[field.name].isNotNull())
    fits = F.coalesce(reduce(lambda a, b: a & b, checks), F.lit(False))
    return read.select(
        *(named(key) for key in algebra.keys),
        *(state[field.name].alias(field.name) for field in algebra.fields),
        fits.alias(_FITS),
        F.lit(_OLD).alias(_SIDE),
    )


def _changes(algebra: Algebra, rows: DataFrame, side: str) -> DataFrame:
    keys = [named(key) for key in algebra.keys]
    return rows.select(*keys, *algebra.fields_in(rows), F.lit(True).alias(_FITS), F.lit(side).alias(_SIDE))


def _added_up(field: StateField, kind: DataType) -> Column:
    """Return the sum of old and added values without the removed ones. Decimals keep all digits on the way."""
    value = F.col(field.name).cast(DecimalType(38, 0)) if isinstance(kind, LongType) else F.col(field.name)
    signed = F.when(F.col(_SIDE) == _REMOVED, -value).otherwise(value)
    return F.sum(signed).cast(kind).alias(field.name)


def _merged(algebra: Algebra, field: StateField) -> Column:
    old, added = F.col(f"{_OLD}_{field.name}"), F.col(f"{_ADDED}_{field.name}")
    if field.merge == "add":
        value = F.col(field.name)
    elif field.merge == "follow":
        value = F.when(_wins(algebra, field), added).otherwise(old)
    else:
        value = (F.least if field.merge == "least" else F.greatest)(old, added)
    counted_by = (_extreme(algebra, field) if field.merge == "follow" else field).counted_by
    # What is of no rows is null, however they were taken away.
    return F.when(F.col(counted_by) > 0, value).alias(field.name) if counted_by else value.alias(field.name)


def _wins(algebra: Algebra, field: StateField) -> Column:
    """Return whether the added rows have the extreme that a field follows."""
    extreme = _extreme(algebra, field)
    old, added = F.col(f"{_OLD}_{extreme.name}"), F.col(f"{_ADDED}_{extreme.name}")
    return F.coalesce(old.isNull() | _beyond(extreme, added, old), F.lit(False))


def _redo(algebra: Algebra, *, knows_all: bool) -> Column:
    """Return whether a key can't be merged: its state is missing, an extreme is gone, or removed rows were never added."""
    is_new = F.col(_OLD) == 0
    reasons = [~F.coalesce(F.col(_FITS), is_new), is_new & ((F.col(_REMOVED) > 0) if knows_all else F.lit(True))]
    for field in algebra.fields:
        if field.merge == "add":
            if field.counted_by is None:
                reasons.append(F.col(field.name) < 0)
            if field.most is not None:
                reasons.append(F.col(field.name) > field.most)
        elif field.merge == "follow":
            reasons.append(_is_tied(algebra, field))
        else:
            reasons.append(_is_gone(field, is_followed=any(other.extreme == field.name for other in algebra.fields)))
    return reduce(lambda a, b: a | b, (F.coalesce(reason, F.lit(False)) for reason in reasons))


def _is_gone(field: StateField, *, is_followed: bool) -> Column:
    """Return whether the extreme was removed while other rows stay, and no added row is as far out.

    Where another field follows the extreme, an added row has to be further out: Spark decides between rows of the same place.
    """
    old, added, removed = (F.col(f"{side}_{field.name}") for side in (_OLD, _ADDED, _REMOVED))
    replaced = _beyond(field, added, old) if is_followed else _beyond(field, added, old) | (added == old)
    at_end = (removed == old) & ~F.coalesce(replaced, F.lit(False)) & (F.col(str(field.counted_by)) > 0)
    return removed.isNotNull() & (old.isNull() | _beyond(field, removed, old) | at_end)


def _is_tied(algebra: Algebra, field: StateField) -> Column:
    """Return whether an added row is as far out as the old one and has another value: which one counts, Spark decides."""
    extreme = _extreme(algebra, field)
    same_place = F.col(f"{_ADDED}_{extreme.name}") == F.col(f"{_OLD}_{extreme.name}")
    return same_place & ~F.col(f"{_ADDED}_{field.name}").eqNullSafe(F.col(f"{_OLD}_{field.name}"))


def _beyond(field: StateField, value: Column, other: Column) -> Column:
    return value < other if field.merge == "least" else value > other


def _extreme(algebra: Algebra, field: StateField) -> StateField:
    return next(other for other in algebra.fields if other.name == field.extreme)
