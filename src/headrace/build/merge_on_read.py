"""Merge-on-read: apply few changes to a table with a new data file and position deletes."""

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
"""Builds rewrite files with at most this many rows; larger ones are left to maintenance."""


def merge_on_read(target: Target, decided: Decided) -> tuple[Merged, pa.Table]:
    """Stage the result of a merge, and return it with the changed old rows, which have `_tombstone`."""
    new, old, deleted = copy_maps(decided.new), copy_maps(decided.old), copy_maps(decided.deletions)
    change = _stage(target, new, decided.places) if new.num_rows or old.num_rows else RowDelta()
    carried, carried_before = count_carried(new, target.table), count_carried(old, target.table)
    merged = Merged(
        change,
        written=new.num_rows,
        gone=old.num_rows,
        read_bytes=target.old.bytes,
        written_bytes=sum(file.file_size_in_bytes for file in (*change.added, *change.deletes)),
        deletions=deleted.num_rows,
        carried=carried[0] - carried_before[0],
        unknown=carried[1] - carried_before[1],
    )
    before = [_marked(old, deleted=False), _marked(deleted, deleted=True)]
    return merged, pa.concat_tables(before, promote_options="permissive")  # nullability differs


def read_verdicts(verdicts: Rows) -> Decided:
    """Return Spark's decisions (`merge.compare`) as Arrow."""
    decided = arrow_rows(verdicts)

    def rows_in(side: str) -> pa.Table:
        return pa.Table.from_struct_array(decided[side].drop_null())

    places = pl.DataFrame(decided.filter(pc.is_valid(decided["old"])).select(PLACE))
    return Decided(rows_in("new"), rows_in("old"), rows_in("deletion"), places)


def stage_new_rows(lake: Lake, table: Table, rows: pa.Table, *, build_id: int, replaced: Sequence[LiveFile] = ()) -> RowDelta:
    """Stage rows to add to a table; they replace the files in `replaced`, which are live in its current snapshot."""
    return RowDelta(
        added=_stage_files(lake, table, [with_constants(rows, {BUILD_ID: build_id})]),
        removed=[file.file for file in replaced],
        outdated=list({delete.file_path: delete for file in replaced for delete in file.deletes}.values()),
        snapshot_id=table.metadata.current_snapshot_id if replaced else None,
    )


def files_to_rewrite(files: Mapping[str, LiveFile], lost: Mapping[str, pl.Series]) -> list[LiveFile]:
    """Return the small files to rewrite together with new rows.

    These are files with many deleted rows, and all small files of a partition that has many: every live build adds one. The
    rewritten file is larger, so the next builds leave it alone, and the cost stays proportional to the changed rows.
    """
    small = [file for file in files.values() if file.rows <= SMALL_FILE_ROWS]
    chosen = {file.path: file for file in small if len(lost.get(file.path, ())) > file.rows * MOST_DELETED}
    partitions: dict[object, list[LiveFile]] = {}
    for file in small:
        partitions.setdefault((file.file.spec_id, repr(file.file.partition)), []).append(file)
    for group in partitions.values():
        if len(group) >= MANY_SMALL:
            chosen |= {file.path: file for file in group}
    return list(chosen.values())


def _stage(target: Target, new: pa.Table, places: pl.DataFrame) -> RowDelta:
    lake = target.lake
    table = lake.catalog.load_table(str(target.table.table))
    files = {file.path: file for file in lake.files.of(table, target.old.snapshot_id)}
    lost = {str(path): rows[PLACE[1]].cast(pl.Int64) for (path,), rows in places.partition_by(PLACE[0], as_dict=True).items()}
    rewritten_files = files_to_rewrite(files, lost)
    rewritten = {file.path for file in rewritten_files}
    rows = [with_constants(new, {BUILD_ID: target.build_id})] if new.num_rows else []
    if rewritten_files:
        rows.append(_without(lake.store.fetch(table, rewritten_files, places=True), lost))
    deletes = stage_position_deletes(
        table, [(files[path].task, positions.to_arrow()) for path, positions in lost.items() if path not in rewritten]
    )
    schema = format_of(table).arrow_schema
    together = [pa.concat_tables([fit_columns(part, schema) for part in rows])] if rows else []
    return RowDelta(
        added=_stage_files(lake, table, together),
        removed=[file.file for file in rewritten_files],
        deletes=[delete for _, delete in deletes.files],
        outdated=[*deletes.outdated, *own_deletes([file.task for file in rewritten_files])],
        snapshot_id=target.old.snapshot_id,
    )


def _stage_files(lake: Lake, table: Table, rows: Sequence[pa.Table]) -> list[DataFile]:
    """Stage rows as files, and store the rows in memory for the next builds."""
    return stage_rows(table, rows, written=partial(lake.store.put, table))


def _without(rows: pa.Table, lost: Mapping[str, pl.Series]) -> pa.Table:
    """Return the rows that are not at one of the lost positions."""
    gone = pl.concat(
        [pl.DataFrame(schema={FILE: pl.String, POSITION: pl.Int64})]
        + [pl.select(pl.lit(path).alias(FILE), positions.alias(POSITION)) for path, positions in lost.items()]
    )
    places = pl.DataFrame(rows.select([FILE, POSITION])).with_row_index("__row")
    remaining = places.join(gone, on=[FILE, POSITION], how="anti")["__row"].sort()
    return copy_maps(rows.take(remaining.to_arrow()).drop_columns([FILE, POSITION]))


def _marked(rows: pa.Table, *, deleted: bool) -> pa.Table:
    return rows.append_column(DELETED, pa.repeat(pa.scalar(deleted), rows.num_rows))


def count_carried(rows: pa.Table, table: LayerTable) -> tuple[int, int]:
    """Return the number of rows with a value from another event, and of rows with a value that no event contains."""
    if not table.unchanged:
        return 0, 0
    carried = rows[CARRIED].drop_null().to_pylist()
    return len(carried), sum(any(not source["is_known"] for source in row) for row in carried)
