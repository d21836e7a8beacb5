"""Merge the rows of touched keys into a table: upserts, histories, aggregates and features."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812

from headrace.build.aggregates.increment import has_redo
from headrace.build.batch_stats import has_batch_stats
from headrace.build.checked_rows import CheckedRows
from headrace.build.copy_on_write import copy_on_write
from headrace.build.events import mark_events
from headrace.build.keeping import record_replaced
from headrace.build.local_merge import Decided, MergeRule, decide_rows
from headrace.build.merge import compare
from headrace.build.merge_on_read import merge_on_read, read_verdicts
from headrace.build.planned_inputs import PlannedInputs
from headrace.build.removed import DELETED
from headrace.build.rows import LocalRows, Rows, union
from headrace.build.staged_build import StagedBuild, merged_build, refuse_rows, written_columns
from headrace.build.target import Merged, Target
from headrace.build.work import ComputedKeys, Work
from headrace.iceberg.files.spark_files import FILE, POSITION
from headrace.iceberg.ledgers.build import BuildLedger
from headrace.quality.expectations import check_results
from headrace.spark.prepared_queries import derive
from headrace.spec.model.layers import CARRIED, LayerTable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def merge_keys(inputs: PlannedInputs, work: Work, build_id: int) -> StagedBuild:
    """Compute the rows of the touched keys, and stage their merge into the table."""
    table, columns = inputs.table, written_columns(inputs)
    checked = inputs.check(work.keys.measured)
    if work.again is not None and has_redo(checked.computed):
        work = work.again()
        checked = inputs.check(work.keys.measured)
    check_results(table, checked.results)
    keys = work.keys
    truncated = keys.touched is None and checked.batch_stats.truncates > 0
    with inputs.old_rows(None if keys.whole or truncated else _touched(table, keys, checked), columns) as old:
        target = Target(inputs.lake, table, old, columns, build_id)
        merged: Merged
        before: DataFrame | pa.Table
        if inputs.changes_few:
            decided = _decide_here(target, work, checked, inputs.plan.entry)
            decided = decided or read_verdicts(inputs.once(_decide_on_spark(inputs, target, work, checked, old.rows)))
            merged, before = merge_on_read(target, decided)
        else:
            verdicts = _decide_on_spark(inputs, target, work, checked, inputs.once(old.rows.frame))
            merged, before = copy_on_write(target, inputs.once(verdicts).frame)
        marked = mark_events(table, checked.good.frame) if truncated else None
        removed = record_replaced(inputs, merged, before, build_id, marked=marked)
        refused = refuse_rows(inputs, checked.refused, checked.results, build_id)
    staged = merged_build(merged, checked.processed, checked.results, refused)
    return replace(staged, batch_stats=checked.batch_stats, removed=removed)


def _touched(table: LayerTable, keys: ComputedKeys, checked: CheckedRows) -> Rows:
    """Return the keys and constant columns that the build touches."""
    if keys.touched is not None:
        return keys.touched
    own = checked.computed.select(list(dict.fromkeys((*table.keys, *table.constant))))
    return own if keys.left is None else union([own.select(keys.left.columns), keys.left], empty=own)


def _decide_here(target: Target, work: Work, checked: CheckedRows, entry: BuildLedger) -> Decided | None:
    """Return the changes, decided in this process, or None if Spark must decide."""
    table, batch_stats = target.table, checked.batch_stats
    if not isinstance(checked.good, LocalRows) or not isinstance(target.old.rows, LocalRows):
        return None
    if table.traits.keeps_versions or batch_stats.truncates or batch_stats.before_truncates:
        return None
    if table.unchanged and not (work.meets_old and batch_stats.omitted + entry.rows_carried == 0):
        return None
    if entry.truncated_at is not None and not work.meets_old:
        return None
    if table.apply_as_deletes and work.meets_old and (batch_stats.before_deletes or not entry.knows_deletes):
        return None
    rule = MergeRule(table.keys, table.sequence_by, meets_old=work.meets_old)
    rows, old = checked.good.arrow, target.old.rows.arrow
    if table.unchanged:  # no event omits a value
        rows = rows.append_column(CARRIED, pa.nulls(rows.num_rows, old.schema.field(CARRIED).type))
    return decide_rows(rule, rows, old, columns=target.columns)


def _decide_on_spark(inputs: PlannedInputs, target: Target, work: Work, checked: CheckedRows, old: Rows) -> DataFrame:
    table = target.table

    def decide(rows: DataFrame, old: DataFrame) -> DataFrame:
        known = old.drop(FILE, POSITION).withColumn(DELETED, F.lit(False))
        desired = work.decide(mark_events(table, rows), known, checked.batch_stats)
        return compare(desired, old, row_key=table.row_key, columns=target.columns)

    if not table.traits.keeps_versions or has_batch_stats(table) or inputs.plan.entry.truncated_at is not None:
        return decide(checked.good.frame, old.frame)  # the query differs between builds, so it can't be prepared
    good = inputs.frame("good", checked.good)
    return derive(good, ("verdicts", work.meets_old), decide, inputs.frame("own", old))
