"""Write all rows of a table again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812

from headrace.build.build_errors import not_unique
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
from headrace.build.versions import key_as_json
from headrace.build.work import Settle, plan_refresh, reduce_rows
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


def refresh(inputs: PlannedInputs, build_id: int, *, settle: Settle, rescaled: tuple[Column, ...]) -> StagedBuild:
    """Write all rows again, in place of the old ones; `rescaled` columns have their new types.

    Rows that are not events are written as the query gives them, and their keys are checked in the files: to bring whole rows
    of a key together would take a shuffle and a sort of all of them.
    """
    table = inputs.table
    checks_files = not table.traits.has_events and not rescaled
    settle = _keep_all if checks_files else settle
    java_table = _table_to_write(inputs, rescaled)
    measured = plan_refresh(inputs)
    columns = [named(name) for name in written_columns(inputs)]

    def reduced(rows: DataFrame) -> DataFrame:
        return reduce_rows(table, mark_events(table, rows), settle)

    result, staged = write_measured(
        inputs, java_table, measured, lambda rows: reduced(rows).where(~F.col(DELETED)).select(*columns), build_id
    )
    if checks_files and not has_unique_keys(table):
        _check_keys(inputs, java_table, staged)
    keeps = bool(table.apply_as_deletes or result.batch_stats.truncates)
    if keeps:
        marked = mark_events(table, measured.good) if result.batch_stats.truncates else None
        deletions = reduced(measured.good).where(F.col(DELETED))
        keep_removed(inputs, deletions, build_id=build_id, generation=build_id, marked=marked)
    stored = load_java_table(inputs.lake.spark, table.table)  # the table to write may be a transaction's, which has no scans
    current = current_snapshot(stored)
    old = plan_files(stored, snapshot_id=current)
    files = FileChanges(staged.files, tuple(old.tasks.values()), snapshot_id=current)
    return replace(result, change=files, removed=keeps)


def _keep_all(table: LayerTable, events: DataFrame, truncates: Sequence[DataFrame], *, carry: bool) -> DataFrame:
    return events


def _check_keys(inputs: PlannedInputs, java_table: JavaObject, staged: StagedFiles) -> None:
    """Raise a SpecError if several rows of staged files have the same key. Only the columns of the keys are read."""
    spark, table = inputs.lake.spark, inputs.table
    files = {str(file.location()): int(file.recordCount()) for file in staged.files}
    if not table.keys or not files:
        return
    keys = [named(key) for key in table.keys]
    with read_files(spark, java_table, scan_written(spark, java_table, files)) as rows:
        repeated = rows.groupBy(*keys).agg(F.count(F.lit(1)).alias(_COUNT)).where(F.col(_COUNT) > 1)
        found = repeated.select(key_as_json(table.keys).alias(_KEY)).first()
    if found is not None:
        raise not_unique(table, found[_KEY])


def _table_to_write(inputs: PlannedInputs, rescaled: tuple[Column, ...]) -> JavaObject:
    """Return the table as the build's commit leaves its columns; nothing is committed here."""
    spark = inputs.lake.spark
    table = load_java_table(spark, inputs.table.table)
    if not rescaled:
        return table
    transaction = table.newTransaction()
    replace_columns(spark, table, rescaled, transaction=transaction)
    return transaction.table()
