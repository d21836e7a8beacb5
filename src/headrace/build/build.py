"""Build one table: plan, compute, stage, commit."""

from __future__ import annotations

import logging
import time
import uuid
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark.errors import PySparkException

from headrace.build.aggregates.algebra import Algebra, find_algebra
from headrace.build.build_errors import explain_spark_error
from headrace.build.inputs import count_new_rows
from headrace.build.lake import Lake
from headrace.build.lateness import Lateness, measure_lateness
from headrace.build.local_inputs import LocalInputs
from headrace.build.plan import TablePlan, take_less
from headrace.build.planned_inputs import NotLocalError, TooManyRowsError
from headrace.build.scanned_inputs import ScannedInputs
from headrace.build.staged_build import StagedBuild
from headrace.build.stored_columns import stored_columns
from headrace.build.strategies.registry import strategy_of
from headrace.faults import fault_point
from headrace.iceberg.catalog.tables import ensure_table, load_table, table_location
from headrace.iceberg.commits.build_commit import FileChanges, commit_build
from headrace.iceberg.commits.build_phases import BuildPhases, PhaseTimer, phase, time_phases
from headrace.iceberg.commits.row_delta import RowDelta
from headrace.iceberg.commits.small_build_commit import commit_small_build
from headrace.iceberg.files.in_flight import check_in_time
from headrace.iceberg.ledgers.build import BuildLedger
from headrace.iceberg.schema.rescaling import keep_scales, rescaled_columns
from headrace.logs import BUILD, log_failure
from headrace.quality.refused import flush_refused
from headrace.spec.model.layers import HIDDEN
from headrace.spec.model.pipeline import TableName
from headrace.spec.model.types import Column

_LOG = logging.getLogger(__name__)
_PROPERTIES = {
    "commit.retry.num-retries": "0",
    "write.metadata.metrics.default": "truncate(16)",
    # Level 1, as in landing and small builds. Ids are unique: with a small dictionary, Parquet falls back to plain early.
    "write.parquet.compression-level": "1",
    "write.parquet.dict-size-bytes": "131072",
}


@dataclass(frozen=True)
class Built:
    """The result of a build. `rows` were added or changed, `gone` were removed or replaced."""

    plan: TablePlan
    entry: BuildLedger
    rows: int
    gone: int
    read_bytes: int
    written_bytes: int
    seconds: float
    phases: BuildPhases


def build_table(lake: Lake, plan: TablePlan) -> Built:
    """Build one table and commit it. Idempotent: after a crash, uncommitted changes are built again."""
    with time_phases() as timer:
        while True:
            try:
                return _build_table(lake, plan, timer)
            except TooManyRowsError as error:
                plan = take_less(lake.catalog, lake.pipeline, plan)
                how = "with scans" if plan.on_scans else "with fewer changes"
                _LOG.info("%s: retrying the build %s: %s", plan.table.table, how, error)


def _build_table(lake: Lake, plan: TablePlan, timer: PhaseTimer) -> Built:
    started, began = time.monotonic(), time.time()
    table = plan.table
    name = table.table
    lake.read_snapshots.note(name, plan.entry.reads, {str(source): state for source, state in plan.until.items()})
    states = find_algebra(lake.spark, table, lake.columns)
    columns = stored_columns(table, lake.columns[name], has_states=isinstance(states, Algebra))
    have = load_table(lake.catalog, name)
    rescaled = rescaled_columns(have, columns) if have is not None and strategy_of(table).can_rescale else ()
    if rescaled and plan.action != "refresh":
        plan = replace(plan, action="refresh", why=("the scale of a decimal column increased",))
    if plan.action == "increment" and (why := strategy_of(table).refresh_instead(plan)):
        plan = replace(plan, action="refresh", why=(why,))
    ensure_table(
        lake.catalog,
        name,
        columns=columns if have is None else keep_scales(have, columns),
        partition_by=table.partition_by,
        location=table_location(lake.settings, name),
        properties=_PROPERTIES,
    )
    flush_refused(lake.catalog, lake.settings, name, plan.entry)
    build_id = plan.entry.build_id + 1
    try:
        with phase("query"):
            result, lateness = _compute(lake, plan, build_id, rescaled)
    except PySparkException as error:
        raise explain_spark_error(table, error, states) from error
    entry = replace(
        plan.entry,
        build_id=build_id,
        changed_in=build_id if result.change or plan.action == "refresh" else plan.entry.changed_in,
        generation=build_id if plan.action == "refresh" else plan.entry.generation,
        definition=plan.definition.digest,
        definition_fields=plan.definition.field_digests,
        writer=str(uuid.uuid4()),
        reads={str(source): state for source, state in plan.until.items()},
        rows_processed=result.processed,
        rows_written=result.rows,
        rows_read=_rows_read(lake, plan),
        expectations=result.results,
        quarantine_files=result.refused,
        built_at_us=time.time_ns() // 1_000,
        seconds=round(time.monotonic() - started, 3),
        phases=replace(timer.phases, commit=_last_commit(lake, plan)),
        event_time_us=lateness.event_time_us,
        rows_late=lateness.rows,
        erasures=plan.entry.erasures + (1 if plan.erased else 0),
        replays=plan.entry.replays + (1 if plan.replayed else 0),
        rows_carried=result.carried + (0 if plan.action == "refresh" else plan.entry.rows_carried),
        rows_unknown=result.unknown + (0 if plan.action == "refresh" else plan.entry.rows_unknown),
        truncated_at=result.batch_stats.truncated_at,
        deleted_at=result.batch_stats.deleted_at,
        knows_deletes=plan.action == "refresh" or plan.entry.knows_deletes,
        removed_in=build_id if result.removed else 0 if plan.action == "refresh" else plan.entry.removed_in,
        largest_entity=result.largest_entity,
        weights=result.weights,
        frozen=tuple(map(str, table.frozen)),
        added_columns=tuple(added for added in HIDDEN if added not in {column.name for column in lake.columns[name]}),
    )
    fault_point(f"{name}:staged")
    check_in_time(lake.settings, began=began, where=str(name))
    with phase("commit"):
        entry = _commit(lake, name, result.change, planned=plan.entry, new=entry, replaced=rescaled)
    lake.commit_seconds[name] = timer.phases.commit or 0.0
    lake.read_snapshots.note(name, entry.reads)
    fault_point(f"{name}:committed")
    flush_refused(lake.catalog, lake.settings, name, entry)
    if entry.largest_entity and entry.largest_entity > table.largest_entity:
        _LOG.warning("%s: build %d has an entity of %d records", name, build_id, entry.largest_entity)
    return Built(
        plan,
        entry,
        rows=result.rows,
        gone=result.gone,
        read_bytes=result.read_bytes,
        written_bytes=result.written_bytes,
        seconds=time.monotonic() - started,
        phases=timer.phases,
    )


def _last_commit(lake: Lake, plan: TablePlan) -> float | None:
    """Return the duration of the last build's commit, or None if unknown."""
    recorded = plan.entry.phases
    return lake.commit_seconds.get(plan.table.table, recorded.commit if recorded else None)


def _rows_read(lake: Lake, plan: TablePlan) -> dict[str, int]:
    """Return how many rows of each input a build processes: all of them in a refresh, new ones in an increment."""
    if plan.action == "refresh":
        return {str(name): state.rows for name, state in plan.until.items()}
    return {
        str(name): count_new_rows(lake.catalog, lake.pipeline, name, plan.since[name], state)
        for name, state in plan.until.items()
    }


def _compute(lake: Lake, plan: TablePlan, build_id: int, rescaled: tuple[Column, ...]) -> tuple[StagedBuild, Lateness]:
    """Stage a build's changes: in this process if its rows are few and can be fetched, otherwise with Spark's scans."""
    strategy = strategy_of(plan.table)
    if plan.reads_few and not rescaled:
        local = LocalInputs(lake.with_session(lake.small), plan)
        try:
            return strategy.stage(local, build_id), measure_lateness(local)
        except TooManyRowsError:
            raise
        except NotLocalError as error:
            _LOG.info("%s: build %d uses scans: %s", plan.table.table, build_id, error)
        except pa.ArrowException as error:  # Spark may convert rows that Arrow can't: the table must not become stale
            message = f"{plan.table.table}: build {build_id} uses scans"
            log_failure(_LOG, lake.settings, BUILD, message, error, level=logging.WARNING)
    inputs = ScannedInputs(lake.with_session(lake.small if plan.is_small else lake.spark), plan)
    try:
        return strategy.stage(inputs, build_id, rescaled=rescaled), measure_lateness(inputs)
    finally:
        inputs.close()


def _commit(
    lake: Lake,
    name: TableName,
    change: RowDelta | FileChanges,
    *,
    planned: BuildLedger,
    new: BuildLedger,
    replaced: tuple[Column, ...],
) -> BuildLedger:
    readers = lake.read_snapshots.of(name)
    if not change and not replaced:
        change = RowDelta()
    if isinstance(change, RowDelta):
        return commit_small_build(lake.catalog, name, delta=change, planned=planned, new=new, readers=readers)
    return commit_build(
        lake.spark, lake.catalog, name, files=change, planned=planned, new=new, replaced=replaced, readers=readers
    )
