"""Builds one table: plan, compute, stage, commit."""

from __future__ import annotations

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

from headrace.errors import BuildError
from headrace.layers.analysis import stored_columns
from headrace.layers.carry import has_unknown
from headrace.layers.entities.arrived import rows_to_resolve
from headrace.layers.entities.build import change_entities, refresh_entities
from headrace.layers.entities.index import Stored
from headrace.layers.entities.records import rules_of
from headrace.layers.entities.scoring import splink_score
from headrace.layers.events import mark_events
from headrace.layers.glance import Glance, glance_metrics, read_glance
from headrace.layers.keeping import keep_before, keep_removed
from headrace.layers.lake import Lake, PlannedInputs
from headrace.layers.lateness import measure_lateness
from headrace.layers.merge import bounds_of, merge, read_bounds
from headrace.layers.placing import Merged, persisted
from headrace.layers.plan import TablePlan
from headrace.layers.removed import DELETED
from headrace.layers.versions import NOT_UNIQUE
from headrace.layers.work import reduce_rows, whole_work, work_of
from headrace.quality.expectations import Measured, check_results, measure, rows_in
from headrace.quality.refused import settle_refused, stage_refused
from headrace.services.faults import reach
from headrace.spec.layers import BUILD_ID, CARRIED, LayerTable
from headrace.tables.arrow_files import ArrowFile, arrow_file, data_folder, stage_arrow
from headrace.tables.build_commit import FileChanges, commit_build
from headrace.tables.build_ledger import BuildLedger, CheckedExpectation
from headrace.tables.catalog import ensure_table, table_location
from headrace.tables.deleted_rows import stage_deletes
from headrace.tables.in_flight import check_in_time
from headrace.tables.spark_columns import named
from headrace.tables.spark_files import JavaObject, ScanFiles, StagedFiles, load_java_table, plan_files, stage_files

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

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


def build_table(lake: Lake, plan: TablePlan) -> Built:
    """Gives back what was built and committed. Idempotent: what a build that died had not committed is built again."""
    started, began = time.monotonic(), time.time()
    lake = lake.for_build(plan)
    table = plan.table
    name = table.table
    ensure_table(
        lake.catalog,
        name,
        columns=stored_columns(table, lake.columns[name]),
        partition_by=table.partition_by,
        location=table_location(lake.settings, name),
        properties=_PROPERTIES,
    )
    settle_refused(lake.catalog, lake.settings, name, plan.entry)
    java_table = load_java_table(lake.spark, name)
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
        raise _explain(table, error) from error
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
    )
    reach(f"{name}:staged")
    check_in_time(lake.settings, began=began, where=str(name))
    entry = commit_build(lake.spark, lake.catalog, name, files=result.files, planned=plan.entry, new=entry)
    reach(f"{name}:committed")
    settle_refused(lake.catalog, lake.settings, name, entry)
    return Built(
        plan,
        entry,
        rows=result.rows,
        gone=result.gone,
        read_bytes=result.read_bytes,
        written_bytes=result.staged.bytes,
        seconds=time.monotonic() - started,
    )


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
    current = _current(java_table)
    old = plan_files(java_table, snapshot_id=current)
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
    rules = rules_of(table, score=splink_score(table, spark=lake.spark))
    is_anew = inputs.plan.action == "refresh"
    current = _current(java_table)
    with ThreadPoolExecutor(1) as beside:  # Java plans while Python reads
        planning = beside.submit(_plan_arrow, java_table, snapshot_id=current)
        arrived = rows_to_resolve(inputs)
        files, arrow_files = planning.result()
    found = lake.catalog.load_table(str(table.table))
    stored = Stored(found, arrow_files, lake.read_files)
    if is_anew:
        change = refresh_entities(table, rows=arrived.rows, stored=stored, rules=rules, build_id=build_id)
    else:
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
    return replace(_merged_result(merged, arrived.processed, arrived.results, refused), removed=removed)


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


def _explain(table: LayerTable, error: PySparkException) -> Exception:
    """Gives back an error of the data, which no retry mends, in plain words; any other as it is."""
    text = str(error)
    if NOT_UNIQUE in text:
        key = text.split(NOT_UNIQUE, 1)[1].splitlines()[0].split(" SQLSTATE")[0].strip()
        return table.error(f"several rows have the key {key}", at="keys", fix="Group by the keys, or name more of them")
    return BuildError(
        f"Spark could not compute the table: {text.splitlines()[0]}",
        where=table.place.label,
        next_step="Nothing was published. The whole error is in logs/spark.log.",
    )
