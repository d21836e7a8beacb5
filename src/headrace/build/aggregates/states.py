"""Stored states of keys, and merging them with the states of changed rows. Pure: DataFrames in and out.

A state is JSON in the column `_state` and contains its shape. If the state is missing or has another shape, its key is
recomputed from its rows and stored with a current state. Expressions are SQL text: a tree of Column objects needs a call to
Java for each node, and a wide table has thousands.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.sql.types import ArrayType, DataType, LongType, StructType

from headrace.build.aggregates.algebra import PREFIX, Algebra
from headrace.spark.times import EXACT_JSON, json_options
from headrace.spec.model.layers import STATE
from headrace.spec.sql.aggregates import StateField

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

REDO = "__redo"
"""The column that marks keys to be recomputed from their rows."""

_SHAPE = "v"
_OLD, _ADDED, _REMOVED = "__old", "__added", "__removed"
_OPTIONS = json_options(EXACT_JSON)


def with_state(algebra: Algebra, rows: DataFrame) -> DataFrame:
    """Return the table's rows with their states, from the result of the algebra's query."""
    shown = rows.where(algebra.having) if algebra.having else rows
    return shown.selectExpr(*(f"`{name}`" for name in algebra.outputs), _packed(algebra))


def rows_of_states(algebra: Algebra, merged: DataFrame) -> DataFrame:
    """Return the rows of merged states, with these states. Keys without remaining rows are dropped.

    A key that must be recomputed has a row with `__redo`.
    """
    has_rows = f"`{algebra.rows}` > 0 AND ({algebra.having or 'true'})"
    shown = merged.where(f"`{REDO}` OR ({has_rows})")
    return shown.selectExpr(*(f"{sql} AS `{name}`" for name, sql in algebra.outputs.items()), _packed(algebra), f"`{REDO}`")


def merge_states(
    algebra: Algebra, *, old: DataFrame, added: DataFrame, removed: DataFrame | None, knows_all: bool
) -> DataFrame:
    """Return keys and fields of every changed key, with `__redo` if they can't be merged.

    `old` has the table's keys and states; `added` and `removed` are the results of the algebra's query on changed rows. Without
    `knows_all`, a key that is not in the table may still have input rows.
    """
    keys = ", ".join(f"`{key}`" for key in algebra.keys)
    names = ", ".join(f"`{field.name}`" for field in algebra.fields)
    parts = [_old_states(algebra, keys), f"SELECT {keys}, {names}, true, '{_ADDED}' FROM {{added}}"]
    if removed is not None:
        parts.append(f"SELECT {keys}, {names}, true, '{_REMOVED}' FROM {{removed}}")
    grouped = ",\n".join(part for field in algebra.fields for part in _grouped(algebra, field))
    counts = ", ".join(f"count_if(`__side` = '{side}') AS `{side}`" for side in (_OLD, _ADDED, _REMOVED))
    merged = ",\n".join(f"{_merged(algebra, field)} AS `{field.name}`" for field in algebra.fields)
    text = f"""
        SELECT {keys}, {merged}, {_redo(algebra, knows_all=knows_all)} AS `{REDO}`
        FROM (
            SELECT {keys}, {grouped}, {counts}, min(IF(`__side` = '{_OLD}', `__fits`, NULL)) AS `__fits`
            FROM ({" UNION ALL ".join(parts)}) GROUP BY {keys}
        )
        WHERE `{_ADDED}` > 0 OR `{_REMOVED}` > 0"""
    return added.sparkSession.sql(text, old=old, added=added, removed=removed)


def _packed(algebra: Algebra) -> str:
    fields = ", ".join(f"'{_short(field)}', {_stored(field)}" for field in algebra.fields)
    return f"to_json(named_struct('{_SHAPE}', '{algebra.shape}', {fields}), {_OPTIONS}) AS `{STATE}`"


def _stored(field: StateField) -> str:
    """Return SQL for the stored value of a field: null for a large set, so that its key is recomputed."""
    return f"IF(size(`{field.name}`) <= {field.most}, `{field.name}`, NULL)" if field.merge == "unite" else f"`{field.name}`"


def _old_states(algebra: Algebra, keys: str) -> str:
    """Return SQL for stored states: keys, fields, whether the state is valid, and the side."""
    kinds = ", ".join(f"`{_short(field)}` {_ddl(algebra.types[field.name].dataType)}" for field in algebra.fields)
    checks = [f"`__read`.`{_SHAPE}` = '{algebra.shape}'"]
    for field in algebra.fields:
        if field.counted_by:
            checks.append(
                f"(`__read`.`{field.counted_by.removeprefix(PREFIX)}` > 0) = (`__read`.`{_short(field)}` IS NOT NULL)"
            )
        elif field.merge in ("add", "unite"):
            checks.append(f"`__read`.`{_short(field)}` IS NOT NULL")
    fields = ", ".join(f"`__read`.`{_short(field)}` AS `{field.name}`" for field in algebra.fields)
    read = f"SELECT {keys}, from_json(`{STATE}`, '`{_SHAPE}` STRING, {kinds}', {_OPTIONS}) AS `__read` FROM {{old}}"
    return f"SELECT {keys}, {fields}, coalesce({' AND '.join(checks)}, false) AS `__fits`, '{_OLD}' AS `__side` FROM ({read})"


def _grouped(algebra: Algebra, field: StateField) -> list[str]:
    """Return SQL that aggregates a field by key: one value for sums, a value for each side for extremes and sets."""
    name = f"`{field.name}`"
    if field.merge != "add":
        sides = (_OLD, _ADDED, _REMOVED)
        return [f"first(IF(`__side` = '{side}', {name}, NULL), true) AS `{side}{field.name}`" for side in sides]
    kind = algebra.types[field.name].dataType
    value = f"CAST({name} AS DECIMAL(38, 0))" if isinstance(kind, LongType) else name  # intermediate sums may overflow
    return [f"CAST(sum(IF(`__side` = '{_REMOVED}', -{value}, {value})) AS {_ddl(kind)}) AS {name}"]


def _merged(algebra: Algebra, field: StateField) -> str:
    """Return SQL for the merged value of a field, null if no rows are left."""
    old, added, _ = _sides(field)
    value, counted_by = f"`{field.name}`", field.counted_by
    if field.merge == "follow":
        extreme = _extreme(algebra, field)
        before, after, _ = _sides(extreme)
        value = f"IF({before} IS NULL OR {_beyond(extreme, after, before)}, {added}, {old})"
        counted_by = extreme.counted_by
    elif field.merge == "unite":
        value = f"array_sort(array_union(coalesce({old}, {added}), coalesce({added}, {old})))"
    elif field.merge != "add":
        value = f"{field.merge}({old}, {added})"
    return f"IF(`{counted_by}` > 0, {value}, NULL)" if counted_by else value


def _redo(algebra: Algebra, *, knows_all: bool) -> str:
    """Return the SQL condition that a key must be recomputed.

    Its state is missing or invalid, its extreme was removed, or rows were removed that were never added.
    """
    is_new = f"`{_OLD}` = 0"
    reasons = [f"NOT ({is_new}) AND NOT `__fits`", f"{is_new} AND `{_REMOVED}` > 0" if knows_all else is_new]
    for field in algebra.fields:
        if field.merge == "follow":
            reasons.append(_is_tied(algebra, field))
        elif field.merge == "unite":
            reasons.append(f"`{algebra.rows}` > 0 AND {_may_be_gone(field)}")
        elif field.merge != "add":
            followers = [other for other in algebra.fields if other.extreme == field.name]
            reasons.append(_is_gone(field, followers))
        elif field.counted_by is None:
            reasons.append(f"`{field.name}` < 0")
        elif field.most is not None:
            reasons.append(f"`{field.name}` > {field.most}")
    return _any(reasons)


def _is_gone(field: StateField, followers: Sequence[StateField]) -> str:
    """Return the SQL condition that the extreme was removed, other rows remain, and no added row is as extreme.

    If other fields follow the extreme, an added row with the same extreme must have the removed row's values, as after an
    update of other columns. Otherwise Spark must choose among the rows with the same extreme.
    """
    old, added, removed = _sides(field)
    same_values = [f"{added_value} <=> {removed_value}" for _, added_value, removed_value in map(_sides, followers)]
    replaced = _any([_beyond(field, added, old), " AND ".join([f"{added} = {old}", *same_values])])
    at_end = f"{removed} = {old} AND NOT {replaced} AND `{field.counted_by}` > 0"
    return f"{removed} IS NOT NULL AND {_any([f'{old} IS NULL', _beyond(field, removed, old), at_end])}"


def _may_be_gone(field: StateField) -> str:
    """Return the SQL condition that a removed value is in no added row: other rows of the key may or may not have it."""
    _, added, removed = _sides(field)
    return f"size(IF({added} IS NULL, {removed}, array_except({removed}, {added}))) > 0"


def _is_tied(algebra: Algebra, field: StateField) -> str:
    """Return the SQL condition that an added row has the same extreme as the old one, and another value."""
    old, added, _ = _sides(field)
    before, after, _ = _sides(_extreme(algebra, field))
    return f"{after} = {before} AND NOT ({added} <=> {old})"


def _any(conditions: Sequence[str]) -> str:
    return "({})".format(" OR ".join(f"coalesce({condition}, false)" for condition in conditions))


def _beyond(field: StateField, value: str, other: str) -> str:
    return f"{value} {'<' if field.merge == 'least' else '>'} {other}"


def _sides(field: StateField) -> tuple[str, str, str]:
    return f"`{_OLD}{field.name}`", f"`{_ADDED}{field.name}`", f"`{_REMOVED}{field.name}`"


def _short(field: StateField) -> str:
    return field.name.removeprefix(PREFIX)


def _extreme(algebra: Algebra, field: StateField) -> StateField:
    return next(other for other in algebra.fields if other.name == field.extreme)


def _ddl(kind: DataType) -> str:
    if isinstance(kind, StructType):
        return f"STRUCT<{', '.join(f'`{field.name}`: {_ddl(field.dataType)}' for field in kind.fields)}>"
    if isinstance(kind, ArrayType):
        return f"ARRAY<{_ddl(kind.elementType)}>"
    return kind.simpleString()
