"""Merge the rows of few touched keys in this process: decide which rows enter and leave a table.

The rules are the same as in `versions.newest_of_keys`, `versions.one_of_keys` and `merge.compare`, which run on Spark: for a
few hundred rows, a query costs far more than the comparison. Spark still handles history versions, omitted values, truncates,
and types that Arrow compares differently. Tests compare both implementations on random rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from headrace.build.merge import PLACE
from headrace.build.removed import DELETED
from headrace.iceberg.rows.arrow_equality import all_true, equal_values
from headrace.iceberg.rows.row_store import FILE, POSITION

_WINNER, _OLD = "__winner", "__old"


@dataclass(frozen=True)
class Decided:
    """The changes of a merge: `new` rows enter, `old` rows leave their `places`, `deletions` are events that delete a key."""

    new: pa.Table
    old: pa.Table
    deletions: pa.Table
    places: pl.DataFrame


@dataclass(frozen=True)
class MergeRule:
    """The rule for choosing a key's row: the newest by `sequence_by`, or the only row without a sequence.

    With `meets_old`, the table's rows compete with the new ones; without it, the new rows replace them.
    """

    keys: tuple[str, ...]
    sequence_by: tuple[str, ...]
    meets_old: bool


def decide_rows(rule: MergeRule, rows: pa.Table, old: pa.Table, *, columns: Sequence[str]) -> Decided | None:
    """Merge `rows` with the `old` rows of the touched keys. Return the changes, or None if Spark must decide.

    `rows` may have `_tombstone`; `old` has the file and the position of each row. Both have `columns`.
    """
    new, known = rows.select(list(columns)), _fit(old, rows.select(list(columns)).schema)
    if known is None or any(pa.types.is_nested(new.schema.field(name).type) for name in (*rule.keys, *rule.sequence_by)):
        return None
    new_frame, old_frame = pl.DataFrame(new), pl.DataFrame(known)
    if old_frame.select(rule.keys).is_duplicated().any():
        return None
    deleted = pl.Series(DELETED, rows[DELETED] if DELETED in rows.column_names else [False] * rows.num_rows, pl.Boolean)
    events = new_frame.with_columns(deleted)
    if rule.meets_old:
        events = pl.concat([events, old_frame.with_columns(pl.lit(False).alias(DELETED))])
    winners = _newest(rule, events.with_row_index(_WINNER))
    if winners is None:
        return None
    places = old_frame.lazy().select(rule.keys).with_row_index(_OLD)
    pairs = (
        winners.lazy()
        .join(places, on=list(rule.keys), how="full", nulls_equal=True, coalesce=True)
        .filter((pl.col(_WINNER) < new_frame.height).fill_null(True))  # a winner from the table changes nothing
        .select(_WINNER, _OLD, DELETED)
        .collect()
    )
    winner, place, is_deletion = (pairs[name].to_arrow() for name in (_WINNER, _OLD, DELETED))
    stays = pc.and_(pc.is_valid(place), pc.fill_null(pc.invert(is_deletion), False))
    stays = _and_equal(stays, new, winner, known, place)
    leaves = pc.drop_null(place.filter(pc.invert(stays)))
    enters = winner.filter(pc.fill_null(pc.and_(pc.invert(stays), pc.invert(is_deletion)), False))
    left = old.take(leaves)
    return Decided(
        new=new.take(enters),
        old=left.select(list(columns)),
        deletions=new.take(winner.filter(pc.fill_null(is_deletion, False))),
        places=pl.DataFrame(left.select([FILE, POSITION])).rename({FILE: PLACE[0], POSITION: PLACE[1]}),
    )


def newest_rows(rows: pa.Table, *, keys: Sequence[str], sequence_by: Sequence[str]) -> pa.Table | None:
    """Return the newest row of each key, or None if Spark must decide. `rows` has `_tombstone`."""
    if any(pa.types.is_nested(rows.schema.field(name).type) for name in (*keys, *sequence_by)):
        return None
    rule = MergeRule(tuple(keys), tuple(sequence_by), meets_old=False)
    winners = _newest(rule, pl.DataFrame(rows).with_row_index(_WINNER))
    return None if winners is None else rows.take(winners[_WINNER].to_arrow())


def _newest(rule: MergeRule, events: pl.DataFrame) -> pl.DataFrame | None:
    """Return the keys, the number and `_tombstone` of each key's winning row, or None if Spark must decide."""
    keys, columns = list(rule.keys), [*rule.keys, _WINNER, DELETED]
    if not rule.sequence_by:
        # Spark's error names the duplicate key.
        return None if events.select(keys).is_duplicated().any() else events.select(columns)
    order = [*rule.sequence_by, DELETED]
    ranked = list(dict.fromkeys((*keys, *order)))
    tied = events.filter(events.select(ranked).is_duplicated())
    rest = [name for name in events.columns if name not in (*order, _WINNER)]
    if tied.is_empty() or _are_repeats(tied, ranked=ranked, rest=rest):
        rest = []  # any of the tied rows may win
    elif any(events.schema[name].is_nested() or events.schema[name].is_float() for name in rest):
        return None
    return events.lazy().sort([*order, *rest], nulls_last=False).group_by(keys).last().select(columns).collect()


def _are_repeats(tied: pl.DataFrame, *, ranked: Sequence[str], rest: Sequence[str]) -> bool:
    """Return whether rows with equal `ranked` columns are equal in all columns: duplicate events."""
    first: dict[tuple[object, ...], tuple[object, ...]] = {}
    ranks, others = tied.select(ranked).iter_rows(), tied.select(rest).iter_rows()
    return all(first.setdefault(rank, other) == other for rank, other in zip(ranks, others, strict=True))


def _and_equal(which: pa.Array, new: pa.Table, left: pa.Array, old: pa.Table, right: pa.Array) -> pa.Array:
    """Return for each pair of row numbers whether it is in `which` and all columns are equal or both null."""
    chosen = pc.indices_nonzero(which)
    rows, others = new.take(left.take(chosen)), old.take(right.take(chosen))
    pairs = zip(rows.columns, others.columns, strict=True)
    same = all_true([_equal_values(a.combine_chunks(), b.combine_chunks()) for a, b in pairs], rows=len(chosen))
    return pc.is_in(pa.array(range(len(which)), pa.uint64()), value_set=chosen.filter(same))


def _equal_values(left: pa.Array, right: pa.Array) -> pa.Array:
    """Return for each pair of values whether they are equal or both null; NaN equals NaN."""
    if pa.types.is_nested(left.type):
        return pa.array([a == b for a, b in zip(left.to_pylist(), right.to_pylist(), strict=True)], pa.bool_())
    if pa.types.is_floating(left.type):
        return pl.Series(left).eq_missing(pl.Series(right)).to_arrow()
    return equal_values(left, right)


def _fit(old: pa.Table, schema: pa.Schema) -> pa.Table | None:
    """Return the schema's columns in its types, or None if types differ in more than their physical form."""
    columns = []
    for field in schema:
        column = old[field.name]
        if "map<" in str(field.type) or _logical_name(column.type) != _logical_name(field.type):
            return None
        columns.append(column if column.type == field.type else pc.cast(column, field.type))
    return pa.Table.from_arrays(columns, schema=schema)


def _logical_name(kind: pa.DataType) -> str:
    """Return a type's name without the parts that don't affect values: nullability and the width of offsets."""
    return str(kind).replace(" not null", "").replace("large_", "").replace("_view", "")
