"""Resolve records, all or the new ones, with the entities that they touch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import polars as pl

from headrace.build.entities.arrived import rows_to_resolve
from headrace.build.entities.build import EntityRows, change_entities, refresh_entities
from headrace.build.entities.columns import record_columns
from headrace.build.entities.distributed.refresh import refresh_on_spark
from headrace.build.entities.distributed.stored import StoredOnSpark
from headrace.build.entities.index import Stored
from headrace.build.entities.records import newest, normalised, rules_of
from headrace.build.entities.scoring import splink_score
from headrace.build.entities.training import choose_weights
from headrace.build.keeping import record_replaced
from headrace.build.lake import Lake
from headrace.build.local_inputs import LocalInputs
from headrace.build.plan import TablePlan
from headrace.build.planned_inputs import NotLocalError, PlannedInputs
from headrace.build.removed import DELETED
from headrace.build.staged_build import StagedBuild, merged_build, refuse_rows
from headrace.build.strategies.strategy import Strategy
from headrace.build.target import Merged
from headrace.iceberg.catalog.spark import open_spark_catalog
from headrace.iceberg.commits.row_delta import RowDelta
from headrace.iceberg.deletes.position_deletes import own_deletes, stage_position_deletes
from headrace.iceberg.files.live_files import LiveFile
from headrace.iceberg.files.spark_files import load_java_table, plan_files, read_files
from headrace.iceberg.files.staged_rows import stage_rows
from headrace.plurals import count_of
from headrace.spark.active_session import use_session
from headrace.spec.model.layers import LayerTable
from headrace.spec.model.types import Column

if TYPE_CHECKING:
    from pyiceberg.table import Table
    from pyspark.sql import DataFrame


MOST_IN_PROCESS = 3_000_000
"""The maximum number of rows resolved in this process: of the table and, for a refresh, of its drivers.

A refresh needs about a kilobyte for each row, so this is about 3 GB. For 300,000 rows Spark took ten times the CPU of one
process, so it is only used for tables that don't fit into memory.
"""


def refreshes_on_spark(plan: TablePlan) -> bool:
    """Return whether a refresh has too many rows for this process, according to metadata."""
    return max(plan.driver_rows, plan.rows) > MOST_IN_PROCESS


class Entities(Strategy):
    """Resolves records to entities."""

    can_rescale = False  # files are written as Arrow, with the table's existing columns

    def describe(self, plan: TablePlan) -> str:
        rows = max(plan.driver_rows, plan.rows)
        where = "on Spark" if refreshes_on_spark(plan) else "in this process"
        return (
            "resolves the entities that changed records belong to or share a value with; a refresh runs "
            f"{where}: it reads {count_of(rows, 'row')}, and up to {MOST_IN_PROCESS:,} fit in this process"
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
            if isinstance(inputs, LocalInputs):
                raise NotLocalError("the table has more rows than fit in this process")
            return refresh_on_spark(inputs, build_id)
        return _resolve(inputs, build_id)


def _resolve(inputs: PlannedInputs, build_id: int) -> StagedBuild:
    """Resolve records, all or the new ones, with the entities that they touch."""
    lake, table = inputs.lake, inputs.table
    own = lake.catalog.load_table(str(table.table))
    files = lake.files.of(own, None)  # first: it raises if rows can't be deleted in this process
    arrived = rows_to_resolve(inputs)
    stored = Stored(own, files, lake.read_files)
    is_refresh = inputs.plan.action == "refresh"
    weights = inputs.plan.entry.weights
    if is_refresh:
        records = newest(normalised(table, arrived.rows), keys=table.keys, sequence_by=table.sequence_by)
        trains = table.fuzzy if table.fuzzy and table.fuzzy.train else None
        weights = choose_weights(records, trains, keys=table.keys, version=build_id) if trains else None
        rules = rules_of(table, score=splink_score(table, spark=lake.spark, stored=weights))
        change = refresh_entities(records, stored=stored, rules=rules, build_id=build_id)
    else:
        rules = rules_of(table, score=splink_score(table, spark=lake.spark, stored=weights))
        touched = arrived.touched
        if arrived.whole and touched is not None:
            touched = pl.concat([touched, stored.ids(rules).select(touched.columns)]).unique()
        with _open_stored(inputs, stored) as known:
            change = change_entities(
                table,
                rows=arrived.rows,
                touched=touched,
                stored=known,
                rules=rules,
                build_id=build_id,
                largest=inputs.plan.entry.largest_entity,
            )
    delta = _stage_files(lake, own, files, change)
    merged = Merged(
        delta,
        written=change.written,
        gone=change.before.height,
        read_bytes=sum(file.size for file in files),
        written_bytes=sum(file.file_size_in_bytes for file in (*delta.added, *delta.deletes)),
    )
    removed = False
    if not is_refresh:
        before = change.before.with_columns(pl.lit(False).alias(DELETED))
        removed = record_replaced(inputs, merged, before.to_arrow(compat_level=pl.CompatLevel.oldest()), build_id)
    refused = () if arrived.refused is None else refuse_rows(inputs, arrived.refused, arrived.results, build_id)
    result = merged_build(merged, arrived.processed, arrived.results, refused)
    return replace(result, removed=removed, largest_entity=change.largest_entity, weights=weights)


def _stage_files(lake: Lake, own: Table, files: Sequence[LiveFile], change: EntityRows) -> RowDelta:
    """Stage files with the new rows, position deletes of the old ones, and the removal of rewritten files."""
    by_path = {file.path: file for file in files}
    replaced = [by_path[path] for path in change.replaced]
    deletes = stage_position_deletes(own, [(by_path[path].task, rows) for path, rows in change.deleted.items()])
    return RowDelta(
        added=stage_rows(own, change.parts, written=partial(lake.store.put, own)),
        removed=[file.file for file in replaced],
        deletes=[delete for _, delete in deletes.files],
        outdated=[*deletes.outdated, *own_deletes([file.task for file in replaced])],
        snapshot_id=own.metadata.current_snapshot_id,
    )


@contextmanager
def _open_stored(inputs: PlannedInputs, stored: Stored) -> Iterator[Stored]:
    """Yield the table's stored records for the block: in this process, or looked up by Spark if there are too many."""
    lake, plan = inputs.lake, inputs.plan
    if plan.rows <= MOST_IN_PROCESS:
        yield stored
        return
    # A small change uses a session without code generation, but the table is large.
    session = open_spark_catalog(lake.spark, lake.settings) if inputs.changes_few else lake.spark
    java_table = load_java_table(session, plan.table.table)
    files = plan_files(java_table, snapshot_id=stored.table.metadata.current_snapshot_id)
    try:
        with read_files(session, java_table, files, with_positions=True) as rows:
            yield StoredOnSpark(stored.table, stored.files, stored.read_files, session, rows)
    finally:
        use_session(lake.spark)
