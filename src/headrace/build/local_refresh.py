"""Refresh a small table in this process, except for one Spark query."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from headrace.build.arrow import copy_maps
from headrace.build.checked_rows import CheckedRows
from headrace.build.events import mark_events
from headrace.build.keeping import record_removed
from headrace.build.local_inputs import LocalInputs, arrow_of
from headrace.build.local_merge import newest_rows
from headrace.build.merge_on_read import count_carried, stage_new_rows
from headrace.build.removed import DELETED
from headrace.build.staged_build import StagedBuild, build_of_new_rows, written_columns
from headrace.build.work import ReduceEvents, plan_refresh, reduce_rows
from headrace.quality.expectations import check_results


def refresh_few(inputs: LocalInputs, build_id: int, *, reduce_events: ReduceEvents) -> StagedBuild:
    """Replace all rows of the table. The result equals `refresh`, which uses Spark's scans."""
    table = inputs.table
    own = inputs.own_table
    replaced = inputs.files_of(own)  # first: it raises if the files can't be replaced in this process
    checked = inputs.check(plan_refresh(inputs))
    check_results(table, checked.results)
    reduced = _reduce(inputs, checked, reduce_events)
    rows = copy_maps(reduced.filter(pc.invert(reduced[DELETED])).select(written_columns(inputs)))
    keeps = bool(table.apply_as_deletes or checked.batch_stats.truncates)
    if keeps:
        marked = mark_events(table, checked.good.frame) if checked.batch_stats.truncates else None
        deletions = copy_maps(reduced.filter(reduced[DELETED]))
        record_removed(inputs, deletions, build_id=build_id, generation=build_id, marked=marked)
    change = stage_new_rows(inputs.lake, own, rows, build_id=build_id, replaced=replaced)
    carried, unknown = count_carried(rows, table)
    staged = build_of_new_rows(inputs, checked, change, rows, build_id=build_id)
    return replace(staged, batch_stats=checked.batch_stats, carried=carried, unknown=unknown, removed=keeps)


def _reduce(inputs: LocalInputs, checked: CheckedRows, reduce_events: ReduceEvents) -> pa.Table:
    """Reduce the accepted rows to the table's rows, with `_tombstone` for deletes."""
    table = inputs.table
    rows = arrow_of(checked.good)
    if DELETED not in rows.column_names:
        rows = rows.append_column(DELETED, pa.repeat(pa.scalar(False), rows.num_rows))
    if not table.keys:
        return rows
    if not table.traits.keeps_versions and not table.unchanged and not checked.batch_stats.truncates:
        newest = newest_rows(rows, keys=table.keys, sequence_by=table.sequence_by)
        if newest is not None:
            return newest
    return arrow_of(inputs.once(reduce_rows(table, mark_events(table, checked.good.frame), reduce_events)))
