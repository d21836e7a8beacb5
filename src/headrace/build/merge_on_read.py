"""Put few changes into a table: new rows get a file of their own, old ones are deleted where they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from headrace.build.arrow import copy_maps
from headrace.build.lake import Lake
from headrace.build.local_merge import Decided
from headrace.build.merge import PLACE
from headrace.build.removed import DELETED
from headrace.build.rows import Rows, arrow_rows
from headrace.build.target import Merged, Target
from headrace.iceberg.commits.row_delta import RowDelta
from headrace.iceberg.deletes.deleted_rows import MOST_DELETED
from headrace.iceberg.deletes.position_deletes import own_deletes, stage_position_deletes
from headrace.iceberg.files.live_files import LiveFile
from headrace.iceberg.files.staged_rows import fit_columns, stage_rows
from headrace.iceberg.files.write import MANY_SMALL, format_of
from headrace.iceberg.rows.arrow_files import with_constants
from headrace.iceberg.rows.row_store import FILE, POSITION
from headrace.spec.model.layers import BUILD_ID, CARRIED, LayerTable

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table

SMALL_FILE_ROWS = 10_000
"""Files of at most so many rows are written again by builds; larger ones are left to maintenance."""


def merge_on_read(target: Target, decided: Decided) -> tuple[Merged, pa.Table]:
    """Stage what a merge has decided, and return it with the old rows that changed, which have `_tombstone`."""
    new, old, deleted = copy_maps(decided.new), copy_maps(decided.old), copy_maps(decided.deletions)
    change = _stage(target, new, decided.places) if new.num_rows or old.num_rows else RowDelta()
    told, was = count_carried(new, target.table), count_carried(old, target.table)
    merged = Merged(
        change,
        written=new.num_rows,
        gone=old.num_rows,
        read_bytes=target.old.bytes,
        written_bytes=sum(file.file_size_in_bytes for file in (*change.added, *change.deletes)),
        deletions=deleted.num_rows,
        carried=told[0] - was[0],
        unknown=told[1] - was[1],
    )
    before = [_marked(old, deleted=False), _marked(deleted, deleted=True)]
    return merged, pa.concat_tables(before, promote_options="permissive")  # what is never null differs


def read_verdicts(verdicts: Rows) -> Decided:
    """Return what Spark decided (`merge.compare`)."""
    decided = arrow_rows(verdicts)

    def rows_in(side: str) -> pa.Table:
        return pa.Table.from_struct_array(decided[side].drop_null())

    places = pl.DataFrame(decided.filter(pc.is_valid(decided["old"])).select(PLACE))
    return Decided(rows_in("new"), rows_in("old"), rows_in("deletion"), places)


def stage_new_rows(lake: Lake, table: Table, rows: pa.Table, *, build_id: int, replaced: Sequence[LiveFile] = ()) -> RowDelta:
    """Stage rows that are added to a table, in place of the files in `replaced`, which its current snapshot has."""
    return RowDelta(
        added=_stage_files(lake, table, [with_constants(rows, {BUILD_ID: build_id})]),
        removed=[file.file for file in replaced],
        outdated=list({delete.file_path: delete for file in replaced for delete in file.deletes}.values()),
        snapshot_id=table.metadata.current_snapshot_id if replaced else None,
    )


def files_to_rewrite(files: Mapping[str, LiveFile], lost: Mapping[str, pl.Series]) -> list[LiveFile]:
    """Return the small files to write again together with new rows.

    These are files that have lost many rows, and all small ones of a partition where they are many, since every live build
    makes one. What is written again is larger then, so the next builds leave it alone: the cost follows the rows that change.
    """
    small = [file for file in files.values() if file.rows <= SMALL_FILE_ROWS]
    again = {file.path: file for file in small if len(lost.get(file.path, ())) > file.rows * MOST_DELETED}
    partitions: dict[object, list[LiveFile]] = {}
    for file in small:
        partitions.setdefault((file.file.spec_id, repr(file.file.partition)), []).append(file)
    for group in partitions.values():
        if len(group) >= MANY_SMALL:
            again |= {file.path: file for file in group}
    return list(again.values())


def _stage(target: Target, new: pa.Table, places: pl.DataFrame) -> RowDelta:
    lake = target.lake
    table = lake.catalog.load_table(str(target.table.table))
    files = {file.path: file for file in lake.files.of(table, target.old.snapshot_id)}
    lost = {str(path): rows[PLACE[1]].cast(pl.Int64) for (path,), rows in places.partition_by(PLACE[0], as_dict=True).items()}
    again = files_to_rewrite(files, lost)
    rewritten = {file.path for file in again}
    rows = [with_constants(new, {BUILD_ID: target.build_id})] if new.num_rows else []
    if again:
        rows.append(_without(lake.store.fetch(table, again, places=True), lost))
    deletes = stage_position_deletes(
        table, [(files[path].task, positions.to_arrow()) for path, positions in lost.items() if path not in rewritten]
    )
    schema = format_of(table).arrow_schema
    together = [pa.concat_tables([fit_columns(part, schema) for part in rows])] if rows else []
    return RowDelta(
        added=_stage_files(lake, table, together),
        removed=[file.file for file in again],
        deletes=[delete for _, delete in deletes.files],
        outdated=[*deletes.outdated, *own_deletes([file.task for file in again])],
        snapshot_id=target.old.snapshot_id,
    )


def _stage_files(lake: Lake, table: Table, rows: Sequence[pa.Table]) -> list[DataFile]:
    """Stage rows as files, whose rows the next builds find in memory."""
    return stage_rows(table, rows, written=partial(lake.store.put, table))


def _without(rows: pa.Table, lost: Mapping[str, pl.Series]) -> pa.Table:
    """Return the rows whose places are not lost."""
    gone = pl.concat(
        [pl.DataFrame(schema={FILE: pl.String, POSITION: pl.Int64})]
        + [pl.select(pl.lit(path).alias(FILE), positions.alias(POSITION)) for path, positions in lost.items()]
    )
    places = pl.DataFrame(rows.select([FILE, POSITION])).with_row_index("__row")
    kept = places.join(gone, on=[FILE, POSITION], how="anti")["__row"].sort()
    return copy_maps(rows.take(kept.to_arrow()).drop_columns([FILE, POSITION]))


def _marked(rows: pa.Table, *, deleted: bool) -> pa.Table:
    return rows.append_column(DELETED, pa.repeat(pa.scalar(deleted), rows.num_rows))


def count_carried(rows: pa.Table, table: LayerTable) -> tuple[int, int]:
    """Return how many rows have a value that another event told, and how many one that none told."""
    if not table.unchanged:
        return 0, 0
    carried = rows[CARRIED].drop_null().to_pylist()
    return len(carried), sum(any(not each["is_known"] for each in row) for row in carried)
