"""Put the rows of touched keys into a table: upserts, histories, aggregates and features."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812

from headrace.build.copy_on_write import copy_on_write
from headrace.build.events import mark_events
from headrace.build.glance import glance_metrics, read_glance
from headrace.build.keeping import keep_before
from headrace.build.merge import compare, row_key
from headrace.build.merge_on_read import merge_on_read
from headrace.build.planned_inputs import PlannedInputs
from headrace.build.removed import DELETED
from headrace.build.staged_build import (
    StagedBuild,
    first_row,
    merged_build,
    refuse_rows,
    written_columns,
)
from headrace.build.target import Merged, Target
from headrace.build.work import plan_increment
from headrace.quality.expectations import check_results, rows_in
from headrace.tables.spark_files import (
    FILE,
    POSITION,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def merge_keys(inputs: PlannedInputs, build_id: int) -> StagedBuild:
    """Put the rows of the touched keys into the table."""
    table, columns = inputs.table, written_columns(inputs)
    work = plan_increment(inputs)
    computed = inputs.once(work.measured.rows)
    measured = replace(work.measured, rows=computed.frame)
    values = first_row(computed.frame.agg(*measured.metrics(), *glance_metrics(table, computed.frame, inputs.plan.entry)))
    results, processed = measured.read_metrics(values), rows_in(values)
    check_results(table, results)
    glance = read_glance(values)
    rows = mark_events(table, measured.good)
    truncated = work.touched is None and glance.truncates > 0
    touched = work.touched or computed.select(list(dict.fromkeys((*table.keys, *table.constant))))
    with inputs.old_rows(None if work.whole or truncated else touched, columns) as old:
        target = Target(inputs.lake, table, old, columns, build_id)
        few = inputs.changes_few
        old_frame = old.frame if few else inputs.once(old.frame).frame
        known = old_frame.drop(FILE, POSITION).withColumn(DELETED, F.lit(False))
        verdicts = compare(work.decide(rows, known, glance), old_frame, row_key=row_key(table), columns=columns)
        merged: Merged
        before: DataFrame | pa.Table
        merged, before = merge_on_read(target, verdicts) if few else copy_on_write(target, inputs.once(verdicts).frame)
        removed = keep_before(inputs, merged, before, build_id, marked=rows if truncated else None)
        refused = refuse_rows(inputs, measured, results, build_id)
    return replace(merged_build(merged, processed, results, refused), glance=glance, removed=removed)
