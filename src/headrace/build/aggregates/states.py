"""States of keys, as they are stored, and how those of changed rows are merged with them. Pure: DataFrames in and out.

A state is JSON in the column `_state`, and names the shape that it was written in. One of another shape, or none, is not read:
its key is computed again from its rows, and stored with a state that fits. What is asked of Spark is asked as SQL: a tree of
Column objects takes a call to Java for each of its nodes, and a wide table has thousands.
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
"""Whether a key has to be computed again from its rows."""

_SHAPE = "v"
_OLD, _ADDED, _REMOVED = "__old", "__added", "__removed"
_OPTIONS = json_options(EXACT_JSON)


def with_state(algebra: Algebra, rows: DataFrame) -> DataFrame:
    """Return the table's rows with their states, out of what the algebra's query has given."""
    shown = rows.where(algebra.having) if algebra.having else rows
    return shown.selectExpr(*(f"`{name}`" for name in algebra.outputs), _packed(algebra))


def rows_of_states(algebra: Algebra, merged: DataFrame) -> DataFrame:
    """Return the rows that merged states give, with these states; a key that has no rows left has none.

    A key that has to be computed again has a row, too, with `__redo`.
    """
    has_rows = f"`{algebra.rows}` > 0 AND ({algebra.having or 'true'})"
    shown = merged.where(f"`{REDO}` OR ({has_rows})")
    return shown.selectExpr(*(f"{sql} AS `{name}`" for name, sql in algebra.outputs.items()), _packed(algebra), f"`{REDO}`")


def merge_states(
    algebra: Algebra, *, old: DataFrame, added: DataFrame, removed: DataFrame | None, knows_all: bool
) -> DataFrame:
    """Return keys and fields of every key that is added to or removed from, with `__redo` where they can't be merged.

    `old` has the table's keys and states, `added` and `removed` are what the algebra's query makes of changed rows. Without
    `knows_all`, a key that the table lacks may have rows nevertheless.
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
    fields = ", ".join(f"'{_short(field)}', {_kept(field)}" for field in algebra.fields)
    return f"to_json(named_struct('{_SHAPE}', '{algebra.shape}', {fields}), {_OPTIONS}) AS `{STATE}`"


def _kept(field: StateField) -> str:
    """Return SQL for what is stored of a field: of a large set nothing, so that its key is computed again."""
    return f"IF(size(`{field.name}`) <= {field.most}, `{field.name}`, NULL)" if field.merge == "unite" else f"`{field.name}`"


def _old_states(algebra: Algebra, keys: str) -> str:
    """Return SQL for stored states: keys, fields, whether they fit, and their side."""
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
    """Return SQL that gathers a field of a key: what is added up as one value, an extreme or a set for each side."""
    name = f"`{field.name}`"
    if field.merge != "add":
        sides = (_OLD, _ADDED, _REMOVED)
        return [f"first(IF(`__side` = '{side}', {name}, NULL), true) AS `{side}{field.name}`" for side in sides]
    kind = algebra.types[field.name].dataType
    value = f"CAST({name} AS DECIMAL(38, 0))" if isinstance(kind, LongType) else name  # sums may pass a bound on their way
    return [f"CAST(sum(IF(`__side` = '{_REMOVED}', -{value}, {value})) AS {_ddl(kind)}) AS {name}"]


def _merged(algebra: Algebra, field: StateField) -> str:
    """Return SQL for the value of a field. What is of no rows is null, however they were taken away."""
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
    """Return SQL that says whether a key can't be merged.

    Its state is missing or does not fit, its extreme is gone, or rows were removed that were never added.
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
    """Return SQL that says whether the extreme was removed while other rows stay, and no added row is as far out.

    Where other fields follow the extreme, an added row of the same place has to have the removed row's values, as an update of
    other columns leaves it. Spark decides between rows of the same place and other values.
    """
    old, added, removed = _sides(field)
    same_values = [f"{came} <=> {went}" for _, came, went in map(_sides, followers)]
    replaced = _any([_beyond(field, added, old), " AND ".join([f"{added} = {old}", *same_values])])
    at_end = f"{removed} = {old} AND NOT {replaced} AND `{field.counted_by}` > 0"
    return f"{removed} IS NOT NULL AND {_any([f'{old} IS NULL', _beyond(field, removed, old), at_end])}"


def _may_be_gone(field: StateField) -> str:
    """Return SQL that says whether a value was removed that no added row has: another row of the key may have it, or none."""
    _, added, removed = _sides(field)
    return f"size(IF({added} IS NULL, {removed}, array_except({removed}, {added}))) > 0"


def _is_tied(algebra: Algebra, field: StateField) -> str:
    """Return SQL that says whether an added row is as far out as the old one, and has another value."""
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
