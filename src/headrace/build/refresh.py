"""Refresh a table: replace all its rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812

from headrace.build.build_errors import not_unique
from headrace.build.events import mark_events
from headrace.build.keeping import record_removed
from headrace.build.planned_inputs import PlannedInputs
from headrace.build.removed import DELETED
from headrace.build.staged_build import (
    StagedBuild,
    current_snapshot,
    write_measured,
    written_columns,
)
from headrace.build.versions import key_as_json
from headrace.build.work import ReduceEvents, plan_refresh, reduce_rows
from headrace.iceberg.commits.build_commit import FileChanges
from headrace.iceberg.files.spark_files import (
    JavaObject,
    StagedFiles,
    load_java_table,
    plan_files,
    read_files,
    scan_written,
)
from headrace.iceberg.schema.rescaling import replace_columns
from headrace.spark.columns import named
from headrace.spec.model.layers import LayerTable
from headrace.spec.model.types import Column
from headrace.spec.sql.aggregates import has_unique_keys

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_COUNT, _KEY = "__count", "__key"


def refresh(inputs: PlannedInputs, build_id: int, *, reduce_events: ReduceEvents, rescaled: tuple[Column, ...]) -> StagedBuild:
    """Replace all rows of a table; `rescaled` columns have their new types.

    Rows that are not events are written as the query returns them, and their keys are checked for duplicates in the written
    files: grouping whole rows by key would shuffle and sort all of them.
    """
    table = inputs.table
    checks_files = not table.traits.has_events and not rescaled
    reduce_events = _reduce_nothing if checks_files else reduce_events
    java_table = _table_to_write(inputs, rescaled)
    measured = plan_refresh(inputs)
    columns = [named(name) for name in written_columns(inputs)]

    def reduced(rows: DataFrame) -> DataFrame:
        return reduce_rows(table, mark_events(table, rows), reduce_events)

    result, staged = write_measured(
        inputs, java_table, measured, lambda rows: reduced(rows).where(~F.col(DELETED)).select(*columns), build_id
    )
    if checks_files and not has_unique_keys(table):
        _check_keys(inputs, java_table, staged)
    keeps = bool(table.apply_as_deletes or result.batch_stats.truncates)
    if keeps:
        marked = mark_events(table, measured.good) if result.batch_stats.truncates else None
        deletions = reduced(measured.good).where(F.col(DELETED))
        record_removed(inputs, deletions, build_id=build_id, generation=build_id, marked=marked)
    stored = load_java_table(inputs.lake.spark, table.table)  # `java_table` may be a transaction's, which can't be scanned
    current = current_snapshot(stored)
    old = plan_files(stored, snapshot_id=current)
    files = FileChanges(staged.files, tuple(old.tasks.values()), snapshot_id=current)
    return replace(result, change=files, removed=keeps)


def _reduce_nothing(table: LayerTable, events: DataFrame, truncates: Sequence[DataFrame], *, fill_omitted: bool) -> DataFrame:
    return events


def _check_keys(inputs: PlannedInputs, java_table: JavaObject, staged: StagedFiles) -> None:
    """Raise a SpecError if several rows of staged files have the same key. Only the key columns are read."""
    spark, table = inputs.lake.spark, inputs.table
    files = {str(file.location()): int(file.recordCount()) for file in staged.files}
    if not table.keys or not files:
        return
    keys = [named(key) for key in table.keys]
    with read_files(spark, java_table, scan_written(spark, java_table, files)) as rows:
        repeated = rows.groupBy(*keys).agg(F.count(F.lit(1)).alias(_COUNT)).where(F.col(_COUNT) > 1)
        duplicate = repeated.select(key_as_json(table.keys).alias(_KEY)).first()
    if duplicate is not None:
        raise not_unique(table, duplicate[_KEY])


def _table_to_write(inputs: PlannedInputs, rescaled: tuple[Column, ...]) -> JavaObject:
    """Return the table with its columns after the build's commit, without committing anything."""
    spark = inputs.lake.spark
    table = load_java_table(spark, inputs.table.table)
    if not rescaled:
        return table
    transaction = table.newTransaction()
    replace_columns(spark, table, rescaled, transaction=transaction)
    return transaction.table()
