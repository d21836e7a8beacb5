"""Builds one table: plan, compute, stage, commit."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import polars as pl
from pyspark.errors import PySparkException
from pyspark.sql import Observation
from pyspark.sql import functions as F  # noqa: N812

from headrace.build.analysis import stored_columns
from headrace.build.build_errors import explain_spark_error
from headrace.build.carry import has_unknown
from headrace.build.entities.arrived import rows_to_resolve
from headrace.build.entities.build import change_entities, refresh_entities
from headrace.build.entities.index import Stored
from headrace.build.entities.records import newest, normalised, rules_of
from headrace.build.entities.scoring import splink_score
from headrace.build.entities.training import choose_weights
from headrace.build.events import mark_events
from headrace.build.glance import Glance, glance_metrics, read_glance
from headrace.build.keeping import keep_before, keep_removed
from headrace.build.lake import Lake, PlannedInputs
from headrace.build.lateness import measure_lateness
from headrace.build.merge import bounds_of, merge, read_bounds
from headrace.build.placing import Merged, persisted
from headrace.build.plan import TablePlan
from headrace.build.removed import DELETED
from headrace.build.work import reduce_rows, whole_work, work_of
from headrace.quality.expectations import Measured, check_results, measure, rows_in
from headrace.quality.refused import settle_refused, stage_refused
from headrace.services.faults import reach
from headrace.spec.layers import BUILD_ID, CARRIED
from headrace.spec.pipeline import TableName
from headrace.spec.types import Column
from headrace.tables.arrow_files import ArrowFile, arrow_file, stage_arrow
from headrace.tables.build_commit import FileChanges, commit_build
from headrace.tables.build_ledger import BuildLedger, CheckedExpectation, TrainedWeights
from headrace.tables.catalog import ensure_table, load_table, table_location
from headrace.tables.deleted_rows import stage_deletes
from headrace.tables.in_flight import check_in_time
from headrace.tables.rescaling import keep_scales, replace_columns, rescaled_columns
from headrace.tables.spark_columns import named
from headrace.tables.spark_files import JavaObject, ScanFiles, StagedFiles, load_java_table, plan_files, stage_files
from headrace.tables.staged_rows import data_folder

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_LOG = logging.getLogger(__name__)
_FILES_OF_APPEND = 2
_CARRIED, _UNKNOWN = "__carried", "__unknown"
_PROPERTIES = {"commit.retry.num-retries": "0", "write.metadata.metrics.default": "truncate(16)"}


@dataclass(frozen=True)
class Built:
    """What a build did. `rows` came or changed, `gone` went or were replaced."""

    plan: TablePlan
    entry: BuildLedger
    rows: int
    gone: int
    read_bytes: int
    written_bytes: int
    seconds: float


@dataclass(frozen=True)
class _Result:
    """Rows that are staged, before the commit."""

    staged: StagedFiles
    files: FileChanges
    rows: int
    gone: int
    read_bytes: int
    processed: int
    results: tuple[CheckedExpectation, ...]
    refused: tuple[str, ...]
    glance: Glance = field(default_factory=Glance)
    carried: int = 0
    unknown: int = 0
    removed: bool = False
    largest_entity: int | None = None
    weights: TrainedWeights | None = None


def build_table(lake: Lake, plan: TablePlan) -> Built:
    """Gives back what was built and committed. Idempotent: what a build that died had not committed is built again."""
    started, began = time.monotonic(), time.time()
    table = plan.table
    name = table.table
    columns = stored_columns(table, lake.columns[name])
    have = load_table(lake.catalog, name)
    rescaled = () if have is None or table.kind == "entities" else rescaled_columns(have, columns)
    if rescaled and plan.action != "refresh":
        plan = replace(plan, action="refresh", why=("a decimal has a larger scale",))
    lake = lake.for_build(plan)
    ensure_table(
        lake.catalog,
        name,
        columns=columns if have is None else keep_scales(have, columns),
        partition_by=table.partition_by,
        location=table_location(lake.settings, name),
        properties=_PROPERTIES,
    )
    settle_refused(lake.catalog, lake.settings, name, plan.entry)
    java_table = _table_to_write(lake, name, rescaled)
    inputs = PlannedInputs(lake, plan)
    build_id = plan.entry.build_id + 1
    try:
        if table.kind == "entities":
            result = _resolve(inputs, java_table, build_id)
        elif plan.action == "refresh":
            result = _refresh(inputs, java_table, build_id)
        elif table.kind == "append":
            result = _append(inputs, java_table, build_id)
        else:
            result = _merge(inputs, java_table, build_id)
        lateness = measure_lateness(inputs)
    except PySparkException as error:
        raise explain_spark_error(table, error) from error
    entry = replace(
        plan.entry,
        build_id=build_id,
        changed_in=build_id if result.files or plan.action == "refresh" else plan.entry.changed_in,
        generation=build_id if plan.action == "refresh" else plan.entry.generation,
        definition=plan.definition,
        writer=str(uuid.uuid4()),
        reads={str(each): state for each, state in plan.until.items()},
        rows_processed=result.processed,
        rows_written=result.rows,
        expectations=result.results,
        quarantine_files=result.refused,
        built_at_us=time.time_ns() // 1_000,
        seconds=round(time.monotonic() - started, 3),
        event_time_us=lateness.event_time_us,
        rows_late=lateness.rows,
        erasures=plan.entry.erasures + (1 if plan.erased else 0),
        replays=plan.entry.replays + (1 if plan.replayed else 0),
        rows_carried=result.carried + (0 if plan.action == "refresh" else plan.entry.rows_carried),
        rows_unknown=result.unknown + (0 if plan.action == "refresh" else plan.entry.rows_unknown),
        truncated_at=result.glance.truncated_at,
        deleted_at=result.glance.deleted_at,
        knows_deletes=plan.action == "refresh" or plan.entry.knows_deletes,
        removed_in=build_id if result.removed else 0 if plan.action == "refresh" else plan.entry.removed_in,
        largest_entity=result.largest_entity,
        weights=result.weights,
    )
    reach(f"{name}:staged")
    check_in_time(lake.settings, began=began, where=str(name))
    entry = commit_build(lake.spark, lake.catalog, name, files=result.files, planned=plan.entry, new=entry, replaced=rescaled)
    reach(f"{name}:committed")
    settle_refused(lake.catalog, lake.settings, name, entry)
    if entry.largest_entity and entry.largest_entity > table.largest_entity:
        _LOG.warning("%s: build %d has an entity of %d records", name, build_id, entry.largest_entity)
    return Built(
        plan,
        entry,
        rows=result.rows,
        gone=result.gone,
        read_bytes=result.read_bytes,
        written_bytes=result.staged.bytes,
        seconds=time.monotonic() - started,
    )


def _table_to_write(lake: Lake, name: TableName, rescaled: tuple[Column, ...]) -> JavaObject:
    """Return the table as the build's commit leaves its columns; nothing is committed here."""
    table = load_java_table(lake.spark, name)
    if not rescaled:
        return table
    transaction = table.newTransaction()
    replace_columns(lake.spark, table, rescaled, transaction=transaction)
    return transaction.table()


def _refresh(inputs: PlannedInputs, java_table: JavaObject, build_id: int) -> _Result:
    """Writes all rows anew, in the place of those that are there."""
    table = inputs.table
    measured = whole_work(inputs)
    columns = [named(name) for name in _written(inputs)]

    def reduced(rows: DataFrame) -> DataFrame:
        return reduce_rows(table, mark_events(table, rows))

    result = _write_measured(
        inputs, java_table, measured, lambda rows: reduced(rows).where(~F.col(DELETED)).select(*columns), build_id
    )
    keeps = bool(table.apply_as_deletes or result.glance.truncates)
    if keeps:
        marked = mark_events(table, measured.good) if result.glance.truncates else None
        deletions = reduced(measured.good).where(F.col(DELETED))
        keep_removed(inputs, deletions, build_id=build_id, generation=build_id, marked=marked)
    stored = load_java_table(inputs.lake.spark, table.table)  # the table to write may be a transaction's, which has no scans
    current = _current(stored)
    old = plan_files(stored, snapshot_id=current)
    files = FileChanges(result.staged.files, tuple(old.tasks.values()), snapshot_id=current)
    return replace(result, files=files, removed=keeps)


def _append(inputs: PlannedInputs, java_table: JavaObject, build_id: int) -> _Result:
    """Adds what the new rows of the drivers become."""
    table = inputs.table
    empty = {name: inputs.whole(name).limit(0) for name in table.drivers if not inputs.moved(name)}
    new = {name: inputs.changes(name).rows for name in table.drivers if inputs.moved(name)}
    measured = measure(inputs.run({**empty, **new}), table.expectations)
    columns = [named(name) for name in _written(inputs)]
    return _write_measured(
        inputs, java_table, measured, lambda rows: rows.select(*columns).coalesce(_FILES_OF_APPEND), build_id
    )


def _write_measured(
    inputs: PlannedInputs,
    java_table: JavaObject,
    measured: Measured,
    shape: Callable[[DataFrame], DataFrame],
    build_id: int,
) -> _Result:
    """Stages what `shape` makes of the rows that pass, and counts the expectations in the same pass."""
    observation, unknown = Observation(), Observation()
    metrics = [*measured.metrics(), *glance_metrics(inputs.table, measured.rows, BuildLedger())]
    observed = replace(measured, rows=measured.rows.observe(observation, *metrics))
    rows = shape(observed.good).withColumn(BUILD_ID, F.lit(build_id).cast("long"))
    if inputs.table.unchanged:
        counts = (F.count(CARRIED).alias(_CARRIED), F.count_if(has_unknown(F.col(CARRIED))).alias(_UNKNOWN))
        rows = rows.observe(unknown, *counts)
    staged = stage_files(inputs.lake.spark, java_table, rows)
    results = measured.read_metrics(observation.get)
    check_results(inputs.table, results)
    return _Result(
        staged,
        FileChanges(staged.files),
        rows=staged.rows,
        gone=0,
        read_bytes=0,
        processed=rows_in(observation.get),
        results=results,
        refused=_refuse(inputs, measured, results, build_id),
        glance=read_glance(observation.get),
        carried=int(unknown.get[_CARRIED]) if inputs.table.unchanged else 0,
        unknown=int(unknown.get[_UNKNOWN]) if inputs.table.unchanged else 0,
    )


def _merge(inputs: PlannedInputs, java_table: JavaObject, build_id: int) -> _Result:
    """Puts the rows of the touched keys into the table."""
    lake, table = inputs.lake, inputs.table
    work = work_of(inputs)
    with persisted(work.measured.rows) as measured_rows:
        measured = replace(work.measured, rows=measured_rows)
        rows = mark_events(table, measured.good)
        bounds_from = rows if work.touched is None else work.touched
        aggregates = [*measured.metrics(), *glance_metrics(table, measured_rows, inputs.plan.entry)]
        aggregates += bounds_of(measured_rows, table) if work.touched is None else []
        values = _first(measured_rows.agg(*aggregates))
        results, processed = measured.read_metrics(values), rows_in(values)
        check_results(table, results)
        glance = read_glance(values)
        truncated = work.touched is None and glance.truncates > 0
        everything = work.whole or truncated
        if work.touched is not None:
            values = _first(work.touched.agg(F.count(F.lit(1)).alias("__touched"), *bounds_of(work.touched, table)))
        touched = rows.select(*(named(key) for key in table.keys)).distinct() if work.touched is None else work.touched
        bounds = {} if everything else read_bounds(bounds_from, table, values)
        try:
            with merge(
                lake,
                java_table,
                table,
                columns=_written(inputs),
                snapshot_id=_current(java_table),
                rows=rows,
                touched=None if everything else touched,
                decide=work.decide,
                glance=glance,
                bounds=bounds,
                build_id=build_id,
                few=inputs.plan.is_small,
            ) as (merged, before):
                removed = keep_before(inputs, merged, before, build_id, marked=rows if truncated else None)
                refused = _refuse(inputs, measured, results, build_id)
        finally:
            if work.touched is not None:
                work.touched.unpersist()
    return replace(_merged_result(merged, processed, results, refused), glance=glance, removed=removed)


def _resolve(inputs: PlannedInputs, java_table: JavaObject, build_id: int) -> _Result:
    """Resolves records, all or those that came, with the entities that they touch."""
    lake, table = inputs.lake, inputs.table
    table.check_extras()
    is_anew = inputs.plan.action == "refresh"
    current = _current(java_table)
    with ThreadPoolExecutor(1) as beside:  # Java plans while Python reads
        planning = beside.submit(_plan_arrow, java_table, snapshot_id=current)
        arrived = rows_to_resolve(inputs)
        files, arrow_files = planning.result()
    found = lake.catalog.load_table(str(table.table))
    stored = Stored(found, arrow_files, lake.read_files)
    weights = inputs.plan.entry.weights
    if is_anew:
        records = newest(normalised(table, arrived.rows), keys=table.keys, sequence_by=table.sequence_by)
        trains = table.fuzzy if table.fuzzy and table.fuzzy.train else None
        weights = choose_weights(records, trains, keys=table.keys, version=build_id) if trains else None
        rules = rules_of(table, score=splink_score(table, spark=lake.spark, stored=weights))
        change = refresh_entities(records, stored=stored, rules=rules, build_id=build_id)
    else:
        rules = rules_of(table, score=splink_score(table, spark=lake.spark, stored=weights))
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
    merged = Merged(staged, changes, written=change.written, gone=change.before.height, read_bytes=files.bytes)
    removed = False
    if not is_anew:
        before = change.before.with_columns(pl.lit(False).alias(DELETED))
        removed = keep_before(inputs, merged, before.to_arrow(compat_level=pl.CompatLevel.oldest()), build_id)
    refused = _refuse(inputs, arrived.measured, arrived.results, build_id) if arrived.measured else ()
    result = _merged_result(merged, arrived.processed, arrived.results, refused)
    return replace(result, removed=removed, largest_entity=change.largest_entity, weights=weights)


def _plan_arrow(java_table: JavaObject, *, snapshot_id: int | None) -> tuple[ScanFiles, tuple[ArrowFile, ...]]:
    """Gives back the files of a snapshot, as Java scans them and as they are read here."""
    files = plan_files(java_table, snapshot_id=snapshot_id)
    return files, tuple(arrow_file(path, task) for path, task in files.tasks.items())


def _merged_result(
    merged: Merged, processed: int, results: tuple[CheckedExpectation, ...], refused: tuple[str, ...]
) -> _Result:
    return _Result(
        merged.staged,
        merged.files,
        rows=merged.written,
        gone=merged.gone,
        read_bytes=merged.read_bytes,
        processed=processed,
        results=results,
        refused=refused,
        carried=merged.carried,
        unknown=merged.unknown,
    )


def _written(inputs: PlannedInputs) -> list[str]:
    """Gives back the columns that a build decides: the table's own, and where carried values are from."""
    names = [column.name for column in inputs.lake.columns[inputs.table.table]]
    return [*names, CARRIED] if inputs.table.unchanged else names


def _refuse(
    inputs: PlannedInputs, measured: Measured, results: tuple[CheckedExpectation, ...], build_id: int
) -> tuple[str, ...]:
    """Gives back the files of the rows that go to the quarantine, which the build's entry names."""
    if not any(each.otherwise == "quarantine" and each.failed for each in results):
        return ()
    lake = inputs.lake
    return stage_refused(lake.spark, lake.catalog, lake.settings, inputs.table.table, measured.refused, build_id=build_id)


def _current(java_table: JavaObject) -> int | None:
    snapshot = java_table.currentSnapshot()
    return None if snapshot is None else int(snapshot.snapshotId())


def _first(rows: DataFrame) -> Mapping[str, Any]:
    row = rows.first()
    assert row is not None
    return row.asDict()
