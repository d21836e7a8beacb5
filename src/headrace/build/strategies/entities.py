"""Resolve records, all or the new ones, with the entities that they touch."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import polars as pl

from headrace.build.entities.arrived import rows_to_resolve
from headrace.build.entities.build import change_entities, refresh_entities
from headrace.build.entities.columns import record_columns
from headrace.build.entities.distributed.refresh import refresh_on_spark
from headrace.build.entities.distributed.stored import StoredOnSpark
from headrace.build.entities.index import Stored
from headrace.build.entities.records import newest, normalised, rules_of
from headrace.build.entities.scoring import splink_score
from headrace.build.entities.training import choose_weights
from headrace.build.keeping import keep_before
from headrace.build.plan import TablePlan
from headrace.build.planned_inputs import PlannedInputs
from headrace.build.removed import DELETED
from headrace.build.staged_build import StagedBuild, current_snapshot, merged_build, refuse_rows
from headrace.build.strategies.strategy import Strategy
from headrace.build.target import Merged
from headrace.spec.layers import LayerTable
from headrace.spec.types import Column
from headrace.tables.arrow_files import ArrowFile, arrow_file, stage_arrow
from headrace.tables.build_commit import FileChanges
from headrace.tables.deleted_rows import stage_deletes
from headrace.tables.spark_catalog import open_spark_catalog, use_session
from headrace.tables.spark_files import JavaObject, ScanFiles, load_java_table, plan_files, read_files
from headrace.tables.staged_rows import data_folder

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


MOST_IN_PROCESS = 3_000_000
"""How many rows are resolved in this process: of the table, and in a refresh of its drivers.

A refresh holds about a kilobyte for each, so these are about 3 GB. For 300,000 rows Spark
took ten times the CPU of one process, so it takes over where memory ends: executors may be many.
"""


def refreshes_on_spark(plan: TablePlan) -> bool:
    """Return whether a refresh has too many rows for this process, as far as metadata tells."""
    return max(plan.driver_rows, plan.rows) > MOST_IN_PROCESS


class Entities(Strategy):
    """Rows are records, each with the entity that it belongs to."""

    needs_scans = "Spark reads changed records, and this process resolves them"
    can_rescale = False  # its files are written as Arrow, in the columns that the table has

    def describe(self, plan: TablePlan) -> str:
        rows = max(plan.driver_rows, plan.rows)
        where = "on Spark" if refreshes_on_spark(plan) else "in this process"
        return (
            "resolves the entities again that a changed record belongs to or shares a value with; a refresh runs "
            f"{where}: it has {rows:,} rows, and up to {MOST_IN_PROCESS:,} are resolved in this process"
        )

    def refresh_instead(self, plan: TablePlan) -> str:
        changed = plan.changed_rows
        return (
            f"{changed:,} rows have changed, and up to {MOST_IN_PROCESS:,} fit in this process"
            if changed > MOST_IN_PROCESS
            else ""
        )

    def readable_columns(self, table: LayerTable, rows: DataFrame, columns: tuple[Column, ...]) -> tuple[Column, ...]:
        return record_columns(table, rows, columns)

    def stage(self, inputs: PlannedInputs, build_id: int, *, rescaled: tuple[Column, ...] = ()) -> StagedBuild:
        inputs.table.check_extras()
        if inputs.plan.action == "refresh" and refreshes_on_spark(inputs.plan):
            return refresh_on_spark(inputs, build_id)
        return _resolve(inputs, build_id)


def _resolve(inputs: PlannedInputs, build_id: int) -> StagedBuild:
    """Resolve records, all or the new ones, with the entities that they touch."""
    lake, table = inputs.lake, inputs.table
    java_table = load_java_table(lake.spark, table.table)
    is_anew = inputs.plan.action == "refresh"
    current = current_snapshot(java_table)
    with ThreadPoolExecutor(1) as beside:  # Java plans while Python reads
        planning = beside.submit(_plan_arrow, java_table, snapshot_id=current)
        arrived = rows_to_resolve(inputs)
        files, arrow_files = planning.result()
    found = lake.catalog.load_table(str(table.table))
    weights = inputs.plan.entry.weights
    if is_anew:
        stored = Stored(found, arrow_files, lake.read_files)
        records = newest(normalised(table, arrived.rows), keys=table.keys, sequence_by=table.sequence_by)
        trains = table.fuzzy if table.fuzzy and table.fuzzy.train else None
        weights = choose_weights(records, trains, keys=table.keys, version=build_id) if trains else None
        rules = rules_of(table, score=splink_score(table, spark=lake.spark, stored=weights))
        change = refresh_entities(records, stored=stored, rules=rules, build_id=build_id)
    else:
        rules = rules_of(table, score=splink_score(table, spark=lake.spark, stored=weights))
        with _open_stored(inputs, Stored(found, arrow_files, lake.read_files), java_table, files) as stored:
            change = change_entities(
                table, rows=arrived.rows, touched=arrived.touched, stored=stored, rules=rules, build_id=build_id
            )
    with ThreadPoolExecutor(1) as beside:
        folder, gone = data_folder(found), change.deleted
        deleting = beside.submit(stage_deletes, lake.spark, found, files.tasks, folder=folder, positions=gone)
        staged = stage_arrow(lake.spark, java_table, found, change.parts)
        deletes = deleting.result()
    changes = FileChanges(
        staged.files,
        tuple(files.tasks[path] for path in change.replaced),
        tuple((files.tasks[path], each) for path, each in deletes.items()),
        current,
    )
    merged = Merged(
        changes,
        written=change.written,
        gone=change.before.height,
        read_bytes=files.bytes,
        written_bytes=staged.bytes,
    )
    removed = False
    if not is_anew:
        before = change.before.with_columns(pl.lit(False).alias(DELETED))
        removed = keep_before(inputs, merged, before.to_arrow(compat_level=pl.CompatLevel.oldest()), build_id)
    refused = refuse_rows(inputs, arrived.measured.refused, arrived.results, build_id) if arrived.measured else ()
    result = merged_build(merged, arrived.processed, arrived.results, refused)
    return replace(result, removed=removed, largest_entity=change.largest_entity, weights=weights)


@contextmanager
def _open_stored(inputs: PlannedInputs, stored: Stored, java_table: JavaObject, files: ScanFiles) -> Iterator[Stored]:
    """Give the table's records while the block runs: in this process, or looked up by Spark where they are too many."""
    lake, plan = inputs.lake, inputs.plan
    if plan.rows <= MOST_IN_PROCESS:
        yield stored
        return
    # The change may be small, and its session one that compiles nothing; the table is not.
    session = open_spark_catalog(lake.spark, lake.settings) if plan.is_small else lake.spark
    try:
        with read_files(session, java_table, files, with_positions=True) as rows:
            yield StoredOnSpark(stored.table, stored.files, stored.read_files, session, rows)
    finally:
        use_session(lake.spark)


def _plan_arrow(java_table: JavaObject, *, snapshot_id: int | None) -> tuple[ScanFiles, tuple[ArrowFile, ...]]:
    """Return the files of a snapshot, as Java scans them and as they are read here."""
    files = plan_files(java_table, snapshot_id=snapshot_id)
    return files, tuple(arrow_file(path, task) for path, task in files.tasks.items())
