"""A table of entities, built in full or where it changed: Spark runs the query, the records are resolved as Arrow.

What a build holds in memory is the query's rows and, of the records that are there, keys, values and entities; besides them
the whole rows of files that have to be written anew.
"""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl
import pyarrow as pa

from headrace.layers.entities.index import FILE_NUMBER, Stored
from headrace.layers.entities.records import newest, normalised, resolve_records
from headrace.layers.entities.resolve import Rules
from headrace.layers.entities.touched import Resolved, resolve_change
from headrace.spec.layers import BUILD_ID, LayerTable
from headrace.spec.matching import CONFIDENCE, ENTITY_ID, PREVIOUS, UNUSED
from headrace.tables.files import MANY_SMALL, ROWS_PER_FILE

_PARTS = 2
_SMALL_ROWS = 50_000
_RESOLVED = (ENTITY_ID, PREVIOUS, UNUSED, CONFIDENCE)


@dataclass(frozen=True)
class EntityRows:
    """Rows to write, as parts that become files, and the paths of the files that go.

    `written` rows are new or changed; `before` are the old rows that were replaced or went.
    """

    parts: tuple[pa.Table, ...]
    replaced: tuple[str, ...]
    written: int
    before: pl.DataFrame


def refresh_entities(table: LayerTable, *, rows: pl.DataFrame, stored: Stored, rules: Rules, build_id: int) -> EntityRows:
    """Gives back all rows of the table, made of all rows of its query. Ids that are there stay."""
    records = newest(normalised(table, rows), keys=table.keys, sequence_by=table.sequence_by)
    resolved = resolve_records(records, stored.ids(rules), rules)
    resolved = resolved.with_columns(pl.lit(build_id, pl.Int64).alias(BUILD_ID))
    return EntityRows(
        _parts(resolved, stored, rows_each=-(-resolved.height // _PARTS)), stored.paths, resolved.height, resolved.clear()
    )


def change_entities(
    table: LayerTable, *, rows: pl.DataFrame, touched: pl.DataFrame | None, stored: Stored, rules: Rules, build_id: int
) -> EntityRows:
    """Gives back what changes when these rows of the query come.

    They are all rows that the touched keys shall have; without touched keys they meet the rows that are there, and the newest
    of a key stays. A row that stays as it is keeps the build that wrote it.
    """
    keys = list(table.keys)
    new = normalised(table, rows)
    index = stored.index(rules)
    meets = (new if touched is None else touched).select(keys).unique()
    if touched is None:
        there = index.join(meets, on=keys, how="semi", nulls_equal=True)
        old = stored.whole(there[FILE_NUMBER].unique().to_list())
        new = pl.concat([new, old.join(meets, on=keys, how="semi", nulls_equal=True).select(new.columns)])
    new = newest(new, keys=keys, sequence_by=table.sequence_by)
    change = resolve_change(index, new, meets, rules)
    wanted = new.join(change.new, on=keys, how="left", nulls_equal=True)
    return _rewrite(wanted, keys=keys, touched=meets, change=change, stored=stored, build_id=build_id)


def _rewrite(
    wanted: pl.DataFrame, *, keys: list[str], touched: pl.DataFrame, change: Resolved, stored: Stored, build_id: int
) -> EntityRows:
    """Gives back the rows that come, with those of the files that hold rows which go."""
    old = stored.whole(change.files)
    columns = [name for name in stored.columns if name != BUILD_ID]
    moved = old.drop(*_RESOLVED).join(change.changed, on=keys, how="inner", nulls_equal=True).select(columns)
    wanted = pl.concat([wanted.select(columns).cast(moved.schema), moved])
    every = pl.concat([touched, change.changed.select(keys)])
    before = old.join(every, on=keys, how="semi", nulls_equal=True)
    same = _same(wanted, before.select(columns), keys)
    written = wanted.join(same, on=keys, how="anti", nulls_equal=True)
    before = before.join(same, on=keys, how="anti", nulls_equal=True)
    if not written.height and not before.height:
        return EntityRows((), (), 0, before.select(columns))
    small = stored.small(rows=_SMALL_ROWS) if len(stored.paths) >= MANY_SMALL else []
    files = {*before[FILE_NUMBER], *(small if len(small) >= MANY_SMALL else [])}
    kept = pl.concat([old, stored.whole(sorted(files - {*change.files}))])
    kept = kept.filter(pl.col(FILE_NUMBER).is_in(sorted(files))).join(before, on=keys, how="anti", nulls_equal=True)
    new = written.with_columns(pl.lit(build_id, pl.Int64).alias(BUILD_ID))
    parts = _parts(pl.concat([new, kept.select(new.columns)]), stored, rows_each=ROWS_PER_FILE)
    return EntityRows(parts, tuple(stored.paths[number] for number in sorted(files)), written.height, before.select(columns))


def _same(wanted: pl.DataFrame, before: pl.DataFrame, keys: list[str]) -> pl.DataFrame:
    """Gives back the keys of rows that are to be what they were."""
    both = wanted.join(before, on=keys, how="inner", nulls_equal=True, suffix="__old")
    if both.is_empty():
        return both.select(keys)
    others = [name for name in wanted.columns if name not in keys]
    equal = pl.all_horizontal(both[name].eq_missing(both[f"{name}__old"]) for name in others)
    return both.filter(pl.select(equal).to_series()).select(keys)


def _parts(rows: pl.DataFrame, stored: Stored, *, rows_each: int) -> tuple[pa.Table, ...]:
    return tuple(stored.to_arrow(each) for each in rows.iter_slices(rows_each)) if rows.height else ()
