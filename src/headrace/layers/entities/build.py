"""A table of entities, built in full or where it changed: Spark runs the query, the records are resolved as Arrow.

What a build holds in memory is the query's rows and, of the records that are there, keys, values and entities; besides them
the whole rows of files that have to be written anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl
import pyarrow as pa
from pyiceberg.table import Table

from headrace.layers.entities.index import FILE_NUMBER, read_index, read_records
from headrace.layers.entities.records import newest, normalised, resolve_records, rules_of, with_confidence
from headrace.layers.entities.touched import Resolved, resolve_change
from headrace.spec.layers import BUILD_ID, LayerTable
from headrace.spec.matching import ENTITY_ID, PREVIOUS, UNUSED

_PARTS = 2
_SMALL_ROWS = 50_000
_MANY_SMALL = 32
_RESOLVED = (ENTITY_ID, PREVIOUS, UNUSED)


@dataclass(frozen=True)
class EntityRows:
    """Rows to write, as parts that become files, and the paths of the files that go.

    `written` rows are new or changed; `before` are the old rows that were replaced or went.
    """

    parts: tuple[pa.Table, ...]
    replaced: tuple[str, ...]
    written: int
    before: pl.DataFrame


def refresh_entities(table: LayerTable, rows: pl.DataFrame, found: Table, paths: Sequence[str], *, build_id: int) -> EntityRows:
    """Gives back all rows of the table, made of all rows of its query. Ids that are there stay."""
    records = newest(normalised(table, rows), keys=table.keys, sequence_by=table.sequence_by or "")
    known = read_index(found, rules_of(table), paths=paths)
    resolved = resolve_records(table, records, known).with_columns(pl.lit(build_id, pl.Int64).alias(BUILD_ID))
    size = -(-resolved.height // _PARTS)
    parts = tuple(_to_arrow(each, found) for each in resolved.iter_slices(size)) if resolved.height else ()
    return EntityRows(parts, tuple(paths), resolved.height, resolved.clear())


def change_entities(
    table: LayerTable,
    rows: pl.DataFrame,
    touched: pl.DataFrame | None,
    found: Table,
    paths: Sequence[str],
    *,
    build_id: int,
) -> EntityRows:
    """Gives back what changes when these rows of the query come.

    They are all rows that the touched keys shall have; without touched keys they meet the rows that are there, and the newest
    of a key stays. A row that stays as it is keeps the build that wrote it.
    """
    keys = list(table.keys)
    new = normalised(table, rows)
    index = read_index(found, rules_of(table), paths=paths)
    meets = new.select(keys).unique() if touched is None else touched.select(keys).unique()
    if touched is None:
        there = index.join(meets, on=keys, how="semi", nulls_equal=True)
        old = _whole(found, paths, there[FILE_NUMBER].unique().to_list())
        new = pl.concat([new, old.join(meets, on=keys, how="semi", nulls_equal=True).select(new.columns)])
    new = newest(new, keys=keys, sequence_by=table.sequence_by or "")
    change = resolve_change(index, new, meets, rules_of(table))
    wanted = with_confidence(new.join(change.new, on=keys, how="left", nulls_equal=True))
    return _rewrite(table, wanted, meets, change, found, paths, build_id)


def _rewrite(
    table: LayerTable,
    wanted: pl.DataFrame,
    touched: pl.DataFrame,
    change: Resolved,
    found: Table,
    paths: Sequence[str],
    build_id: int,
) -> EntityRows:
    """Gives back the rows that come, with those of the files that hold rows which go."""
    keys = list(table.keys)
    old = _whole(found, paths, change.files)
    columns = [name for name in old.columns if name not in (BUILD_ID, FILE_NUMBER)]
    moved = old.drop(*_RESOLVED).join(change.changed, on=keys, how="inner", nulls_equal=True).select(columns)
    wanted = pl.concat([wanted.select(columns).cast(moved.schema), moved])
    every = pl.concat([touched, change.changed.select(keys)])
    before = old.join(every, on=keys, how="semi", nulls_equal=True)
    same = _same(wanted, before, keys, columns)
    written = wanted.join(same, on=keys, how="anti", nulls_equal=True)
    before = before.join(same, on=keys, how="anti", nulls_equal=True)
    files = before[FILE_NUMBER].unique().to_list()
    if not written.height and not before.height:
        return EntityRows((), (), 0, before.select(columns))
    files = sorted({*files, *_small_files(found, paths)})
    kept = old.filter(pl.col(FILE_NUMBER).is_in(files))
    missing = [number for number in files if number not in change.files]
    kept = pl.concat([kept, _whole(found, paths, missing)]) if missing else kept
    kept = kept.join(before, on=keys, how="anti", nulls_equal=True).drop(FILE_NUMBER)
    new = pl.concat([written.with_columns(pl.lit(build_id, pl.Int64).alias(BUILD_ID)), kept.select(*columns, BUILD_ID)])
    parts = tuple(_to_arrow(each, found) for each in new.iter_slices(1_000_000)) if new.height else ()
    return EntityRows(parts, tuple(paths[number] for number in files), written.height, before.select(columns))


def _same(wanted: pl.DataFrame, before: pl.DataFrame, keys: Sequence[str], columns: Sequence[str]) -> pl.DataFrame:
    """Gives back the keys of rows that are to be what they were."""
    both = wanted.join(before.select(columns), on=keys, how="inner", nulls_equal=True, suffix="__old")
    others = [name for name in columns if name not in keys]
    equal = pl.all_horizontal(both[name].eq_missing(both[f"{name}__old"]) for name in others)
    return both.filter(pl.select(equal).to_series()).select(keys) if both.height else both.select(keys)


def _small_files(found: Table, paths: Sequence[str]) -> list[int]:
    """Gives back small files to write together with this build's rows, once there are many: live builds make one each."""
    if len(paths) < _MANY_SMALL:
        return []
    counts = {task.file.file_path: task.file.record_count for task in found.scan().plan_files()}
    small = [number for number, path in enumerate(paths) if counts.get(path, 0) < _SMALL_ROWS]
    return small if len(small) >= _MANY_SMALL else []


def _whole(found: Table, paths: Sequence[str], numbers: Sequence[int]) -> pl.DataFrame:
    """Gives back all columns of files by their numbers, which the rows keep."""
    names = [field.name for field in found.schema().fields]
    rows = read_records(found, [paths[number] for number in numbers], columns=names)
    given = pl.Series(numbers, dtype=pl.UInt32)
    return rows.with_columns(given.gather(rows[FILE_NUMBER]).alias(FILE_NUMBER)) if rows.height else rows


def _to_arrow(rows: pl.DataFrame, found: Table) -> pa.Table:
    return rows.select(field.name for field in found.schema().fields).to_arrow(compat_level=pl.CompatLevel.oldest())
