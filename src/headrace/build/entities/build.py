"""Build an entity table, in full or incrementally, by resolving the rows of its query as Arrow.

In memory a build holds the query's rows; the keys, values and entities of the existing records; the changed rows; and the rows
of files that it rewrites.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import polars as pl
import pyarrow as pa

from headrace.build.entities.index import FILE_NUMBER, PLACE, ROW_NUMBER, Stored
from headrace.build.entities.records import newest, normalised, resolve_records
from headrace.build.entities.resolve import Rules, largest_entity
from headrace.build.entities.touched import resolve_change
from headrace.iceberg.deletes.deleted_rows import MOST_DELETED
from headrace.iceberg.files.write import MANY_SMALL, ROWS_PER_FILE
from headrace.spec.model.layers import BUILD_ID, LayerTable
from headrace.spec.model.matching import CONFIDENCE, ENTITY_ID, PREVIOUS, UNUSED

MOST_REWRITTEN = 3_000_000
"""The maximum number of rows in files that one build rewrites in memory, at about a kilobyte each.

In other files rows are only deleted with merge-on-read, and compaction or a later build rewrites them.
"""
_PARTS = 2
_SMALL_ROWS = 50_000
_RESOLVED = (ENTITY_ID, PREVIOUS, UNUSED, CONFIDENCE)


@dataclass(frozen=True)
class EntityRows:
    """The rows to write as parts, one file each; the paths of removed files; and the deleted positions in other files.

    `written` rows are new or changed; `before` are the old rows that were replaced or removed. `largest_entity` is the number
    of records in the largest entity.
    """

    parts: tuple[pa.Table, ...]
    replaced: tuple[str, ...]
    deleted: Mapping[str, pa.Array]
    written: int
    before: pl.DataFrame
    largest_entity: int


def refresh_entities(records: pl.DataFrame, *, stored: Stored, rules: Rules, build_id: int) -> EntityRows:
    """Resolve all records and return all rows of the table. Existing ids are kept."""
    resolved = resolve_records(records, stored.ids(rules), rules)
    resolved = resolved.with_columns(pl.lit(build_id, pl.Int64).alias(BUILD_ID))
    parts = _parts(resolved, stored, rows_each=-(-resolved.height // _PARTS))
    replaced = tuple(file.path for file in stored.files)
    return EntityRows(parts, replaced, {}, resolved.height, resolved.clear(), largest_entity(resolved))


def change_entities(
    table: LayerTable,
    *,
    rows: pl.DataFrame,
    touched: pl.DataFrame | None,
    stored: Stored,
    rules: Rules,
    build_id: int,
    largest: int | None = None,
) -> EntityRows:
    """Return the changes for these rows of the query; `largest` is the size of the largest entity so far.

    The rows are all new rows of the touched keys. Without touched keys, they are merged with the existing rows, and the newest
    row of each key wins. An unchanged row keeps its build id.
    """
    keys = list(table.keys)
    new = normalised(table, rows)
    index = stored.index(rules)
    meets = (new if touched is None else touched).select(keys).unique()
    replaced = index.with_keys(meets)
    old = stored.complete(replaced)
    if touched is None:
        new = pl.concat([new, old.select(new.columns)])
    new = newest(new, keys=keys, sequence_by=table.sequence_by)
    change = resolve_change(index, new, replaced, rules, largest=largest)
    was = stored.complete(change.was)
    columns = [name for name in stored.columns if name != BUILD_ID]
    moved = was.drop(*_RESOLVED).join(change.changed, on=keys, how="inner", nulls_equal=True).select(columns)
    wanted = new.join(change.new, on=keys, how="left", nulls_equal=True).select(columns)
    wanted = pl.concat([wanted.cast(moved.schema), moved])
    before = pl.concat([old, was])
    same = _same(wanted, before.select(columns), keys)
    written = wanted.join(same, on=keys, how="anti", nulls_equal=True)
    before = before.join(same, on=keys, how="anti", nulls_equal=True)
    changed = _change_files(written, before, stored=stored, build_id=build_id)
    return replace(changed, largest_entity=change.largest_entity)


def _change_files(written: pl.DataFrame, before: pl.DataFrame, *, stored: Stored, build_id: int) -> EntityRows:
    """Write the new rows, and remove the old ones with merge-on-read or by rewriting their file.

    A file is rewritten if many of its rows are deleted, or if it is one of many small files.
    """
    if not written.height and not before.height:
        return EntityRows((), (), {}, 0, before.select(written.columns), 0)
    gone = {number: rows[ROW_NUMBER] for (number,), rows in before.partition_by(FILE_NUMBER, as_dict=True).items()}
    gone = {number: pl.concat([rows, stored.deleted[number]]).sort() for number, rows in sorted(gone.items())}
    small = stored.small(rows=_SMALL_ROWS) if len(stored.files) >= MANY_SMALL else []
    rewritten = {number for number, rows in gone.items() if len(rows) > stored.files[number].rows * MOST_DELETED}
    rewritten |= {*small} if len(small) >= MANY_SMALL else set()
    rewritten = _within(rewritten, stored, rows=MOST_REWRITTEN)
    remaining = stored.whole(sorted(rewritten)).join(before, on=PLACE, how="anti")
    new = written.with_columns(pl.lit(build_id, pl.Int64).alias(BUILD_ID))
    return EntityRows(
        _parts(pl.concat([new, remaining.select(new.columns)]), stored, rows_each=ROWS_PER_FILE),
        tuple(stored.files[number].path for number in sorted(rewritten)),
        {stored.files[number].path: rows.to_arrow() for number, rows in gone.items() if number not in rewritten},
        written.height,
        before.select(written.columns),
        0,
    )


def _within(numbers: set[int], stored: Stored, *, rows: int) -> set[int]:
    """Return the first of these files that have at most `rows` rows together."""
    chosen, total = set(), 0
    for number in sorted(numbers):
        total += stored.files[number].rows
        if total <= rows:
            chosen.add(number)
    return chosen


def _same(wanted: pl.DataFrame, before: pl.DataFrame, keys: list[str]) -> pl.DataFrame:
    """Return the keys of unchanged rows."""
    both = wanted.join(before, on=keys, how="inner", nulls_equal=True, suffix="__old")
    if both.is_empty():
        return both.select(keys)
    others = [name for name in wanted.columns if name not in keys]
    equal = pl.all_horizontal(both[name].eq_missing(both[f"{name}__old"]) for name in others)
    return both.filter(pl.select(equal).to_series()).select(keys)


def _parts(rows: pl.DataFrame, stored: Stored, *, rows_each: int) -> tuple[pa.Table, ...]:
    return tuple(stored.to_arrow(part) for part in rows.iter_slices(rows_each)) if rows.height else ()
