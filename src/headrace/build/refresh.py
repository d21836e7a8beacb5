"""Write all rows of a table again."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812

from headrace.build.events import mark_events
from headrace.build.keeping import keep_removed
from headrace.build.planned_inputs import PlannedInputs
from headrace.build.removed import DELETED
from headrace.build.staged_build import (
    StagedBuild,
    current_snapshot,
    write_measured,
    written_columns,
)
from headrace.build.work import Settle, plan_refresh, reduce_rows
from headrace.spec.types import Column
from headrace.tables.build_commit import FileChanges
from headrace.tables.rescaling import replace_columns
from headrace.tables.spark_columns import named
from headrace.tables.spark_files import (
    JavaObject,
    load_java_table,
    plan_files,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def refresh(inputs: PlannedInputs, build_id: int, *, settle: Settle, rescaled: tuple[Column, ...]) -> StagedBuild:
    """Write all rows again, in place of the old ones; `rescaled` columns have their new types."""
    table = inputs.table
    java_table = _table_to_write(inputs, rescaled)
    measured = plan_refresh(inputs)
    columns = [named(name) for name in written_columns(inputs)]

    def reduced(rows: DataFrame) -> DataFrame:
        return reduce_rows(table, mark_events(table, rows), settle)

    result, staged = write_measured(
        inputs, java_table, measured, lambda rows: reduced(rows).where(~F.col(DELETED)).select(*columns), build_id
    )
    keeps = bool(table.apply_as_deletes or result.glance.truncates)
    if keeps:
        marked = mark_events(table, measured.good) if result.glance.truncates else None
        deletions = reduced(measured.good).where(F.col(DELETED))
        keep_removed(inputs, deletions, build_id=build_id, generation=build_id, marked=marked)
    stored = load_java_table(inputs.lake.spark, table.table)  # the table to write may be a transaction's, which has no scans
    current = current_snapshot(stored)
    old = plan_files(stored, snapshot_id=current)
    files = FileChanges(staged.files, tuple(old.tasks.values()), snapshot_id=current)
    return replace(result, change=files, removed=keeps)


def _table_to_write(inputs: PlannedInputs, rescaled: tuple[Column, ...]) -> JavaObject:
    """Return the table as the build's commit leaves its columns; nothing is committed here."""
    spark = inputs.lake.spark
    table = load_java_table(spark, inputs.table.table)
    if not rescaled:
        return table
    transaction = table.newTransaction()
    replace_columns(spark, table, rescaled, transaction=transaction)
    return transaction.table()
