"""Building as a command runs it: tables in the order in which they read one another, side by side where they don't."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, replace
from threading import Event
from typing import TYPE_CHECKING

from py4j.protocol import Py4JNetworkError

from headrace.backoff import BUILDS, BUILDS_BESIDE_COMPACTION
from headrace.build.analysis import analyse
from headrace.build.build import Built, build_table
from headrace.build.growth import columns_landed, has_grown
from headrace.build.lake import Lake
from headrace.build.plan import TablePlan, foresee, plan_table
from headrace.build.strategies.registry import strategy_of
from headrace.build.watermarks import mirror_watermarks
from headrace.errors import (
    BuildError,
    CompactedError,
    HeadraceError,
    QualityError,
    RetryableError,
    SpecError,
    TakenOverError,
    UnavailableError,
)
from headrace.iceberg.catalog.outages import translate_outages
from headrace.iceberg.catalog.spark import open_spark_catalog
from headrace.iceberg.catalog.tables import find_catalog, load_table, open_catalog
from headrace.iceberg.files.live_files import LiveFiles
from headrace.iceberg.ledgers.build import CheckedExpectation, read_build
from headrace.iceberg.rows.row_store import RowStore
from headrace.iceberg.schema.rescaling import keep_scales
from headrace.iceberg.schema.widening import can_widen
from headrace.quality.results import CheckedBuild, record_results
from headrace.servers.embedded import Report
from headrace.sessions.build_log import log_built, log_failed_try
from headrace.sessions.lock import build_lock
from headrace.sessions.retry_policy import RetryPolicy, for_command, retry
from headrace.sessions.shared_spark import spark_session
from headrace.settings import Settings
from headrace.spark.session import explain_end
from headrace.spec.model.layers import LayerTable
from headrace.spec.model.pipeline import Pipeline, TableName
from headrace.spec.problems import suggest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_AT_ONCE = 2


@dataclass(frozen=True)
class Outcome:
    """The outcome of a table: built, failed, skipped because of an upstream table, or up to date.

    `grown` says that an input had got columns which the lake did not know when the build began. `newest_change` is when, by the
    clock of a live run, the newest change landed that the table has.
    """

    table: LayerTable
    plan: TablePlan | None = None
    built: Built | None = None
    error: HeadraceError | None = None
    because_of: TableName | None = None
    grown: bool = False
    newest_change: float | None = None

    @property
    def rest_since(self) -> float | None:
        """When the oldest change was committed that the build left to the next one, in seconds since 1970."""
        return self.built.plan.rest_since if self.built else None


@contextmanager
def building_session(
    settings: Settings, pipeline: Pipeline, *, report: Report, tables: tuple[LayerTable, ...] | None = None
) -> Iterator[Lake]:
    """Yield a pipeline's lake with a Spark of its own, while no one else builds it."""
    with build_lock(settings, pipeline.name), spark_session(settings, report=report) as spark:
        retry_policy = for_command("build", report=report)
        yield retry(lambda: open_lake(settings, pipeline, spark, tables=tables), retry_policy)


def open_lake(
    settings: Settings, pipeline: Pipeline, spark: SparkSession, *, tables: tuple[LayerTable, ...] | None = None
) -> Lake:
    """Return the pipeline's lake; a mistake in any of its tables is a SpecError before anything is written.

    With `tables`, a dependency-closed subset of the tables, only these are analysed and can be built.
    """
    looked_at = pipeline.tables if tables is None else tables
    store = RowStore(settings.row_cache, most_bytes=settings.build_cache_mb * 1024 * 1024)
    unread = Lake(
        spark=open_spark_catalog(spark, settings),
        small=open_spark_catalog(spark, settings, rows="few"),
        catalog=open_catalog(settings),
        settings=settings,
        pipeline=pipeline,
        columns={},
        files=LiveFiles(),
        store=store,
    )
    for table in pipeline.tables:  # also tables that are not built here: they read this snapshot
        unread.read_snapshots.note(table.table, read_build(load_table(unread.catalog, table.table)).reads)
    return follow_inputs(unread, tables=looked_at)


def follow_inputs(lake: Lake, *, tables: tuple[LayerTable, ...] | None = None) -> Lake:
    """Return the lake with the current columns of its raw tables, and the columns of its queries over them.

    With `tables`, a dependency-closed subset of the tables, only these are analysed and can be built.
    """
    looked_at = tuple(table for table in lake.pipeline.tables if table.table in lake.columns) if tables is None else tables
    landed = columns_landed(lake.catalog, lake.pipeline)
    columns = analyse(lake.small, replace(lake.pipeline, tables=looked_at), landed)
    for table in looked_at:
        stored = load_table(lake.catalog, table.table)
        wanted = columns[table.table]
        if stored is not None and strategy_of(table).can_rescale:
            wanted = keep_scales(stored, wanted)
        if stored is not None and not can_widen(stored, wanted):
            raise table.error(
                f"{table.table} can't become what the query says: a column's type would have to be narrowed",
                at="",
                fix="Give the new form a column of its own, or the table another name",
            )
    return replace(lake, columns=columns)


def plan(settings: Settings, pipeline: Pipeline, *, table: str | None, full_refresh: bool) -> tuple[TablePlan, ...]:
    """Return what a build would do, table by table; it needs no Spark."""
    catalog = find_catalog(settings)
    chosen = choose_tables(pipeline, table)
    return foresee(
        [plan_table(catalog, pipeline, layer, full_refresh=full_refresh and is_meant(layer, table)) for layer in chosen]
    )


def choose_tables(pipeline: Pipeline, name: str | None) -> tuple[LayerTable, ...]:
    """Return all tables of a pipeline, or one table and its upstream tables, in order."""
    if name is None:
        return pipeline.tables
    by_name = {table.table: table for table in pipeline.tables}
    matching = [candidate for candidate in pipeline.tables if is_meant(candidate, name)]
    if not matching:
        hint = suggest(name, [str(table_name) for table_name in by_name], plural="Tables")
        raise SpecError(f'not found: table "{name}"', where=f"pipeline {pipeline.name}", next_step=hint)
    matching = [candidate for candidate in matching if str(candidate.table) == name] or matching
    if len(matching) > 1:
        raise SpecError(
            f'several tables are called "{name}": {", ".join(str(candidate.table) for candidate in matching)}',
            where=f"pipeline {pipeline.name}",
            next_step=f"Write the namespace too: {matching[0].table}",
        )
    wanted = {matching[0].table}
    for candidate in reversed(pipeline.tables):
        if candidate.table in wanted:
            wanted |= {name for name in candidate.inputs if name in by_name}
    return tuple(table for table in pipeline.tables if table.table in wanted)


def build(
    lake: Lake,
    *,
    table: str | None = None,
    full_refresh: bool = False,
    only: Collection[TableName] | None = None,
    refresh: Collection[TableName] = (),
    done: Callable[[Outcome], None] = lambda outcome: None,
    stop: Event | None = None,
    retry_policy: RetryPolicy | None = None,
) -> tuple[Outcome, ...]:
    """Build stale tables in dependency order, and return the outcome of each.

    With `only`, other tables are read as they are. Tables in `refresh` are rebuilt. A failed table blocks only its downstream
    tables. Outcomes are then mirrored into `metadata`, also those of a crashed application. A table
    whose input has new columns is built after all queries are analysed again, so that no row is read without them. During an
    outage of the catalog or the object store, `retry_policy` says how unfinished tables are retried; without it, they fail.
    """
    ended = stop or Event()
    totals: dict[TableName, Outcome] = {}
    parts: list[Outcome] = []

    def note(outcome: Outcome) -> None:
        if outcome.rest_since is not None:
            parts.append(outcome)
        done(outcome)

    while True:
        refreshed = frozenset(
            layer.table
            for layer in lake.pipeline.tables
            if ((full_refresh and is_meant(layer, table)) or layer.table in refresh)
            and not (layer.table in totals and totals[layer.table].built)
        )
        tables = tuple(layer for layer in choose_tables(lake.pipeline, table) if only is None or layer.table in only)
        outcomes = _round(lake, tables, refresh=refreshed, done=note, stop=stop, retry_policy=retry_policy)
        grown = {outcome.table.table for outcome in outcomes if outcome.grown}
        for outcome in outcomes:
            before = totals.get(outcome.table.table)
            if before is None or outcome.built or outcome.error or not before.built:
                has_grown = outcome.grown or (before is not None and before.grown)
                totals[outcome.table.table] = replace(outcome, grown=has_grown)
        away = next((outcome.error for outcome in outcomes if isinstance(outcome.error, UnavailableError)), None)
        if retry_policy is not None and away is not None:
            if ended.wait(retry_policy.next_pause(away)):
                return tuple(totals.values())
            continue
        if retry_policy is not None:
            retry_policy.goes_on()
        if not grown:
            break
        known = lake
        lake = retry(lambda: follow_inputs(known), retry_policy, stop=ended)  # noqa: B023
    retry(lambda: mirror(lake, (*parts, *totals.values())), retry_policy, stop=ended)
    return tuple(totals.values())


def _round(
    lake: Lake,
    tables: tuple[LayerTable, ...],
    *,
    refresh: Collection[TableName],
    done: Callable[[Outcome], None],
    stop: Event | None,
    retry_policy: RetryPolicy | None,
) -> tuple[Outcome, ...]:
    """Build the tables, independent ones concurrently, and return the outcome of each.

    With `retry_policy`, no build starts after the first outage, and outages are not reported as failures of tables.
    """
    away = False
    outcomes: dict[TableName, Outcome] = {}
    waiting = {table.table: table for table in _longest_chain_first(tables)}
    running: dict[Future[Outcome], TableName] = {}
    with ThreadPoolExecutor(max_workers=_AT_ONCE, thread_name_prefix="build") as pool:
        while waiting or running:
            for ready in _ready(waiting, outcomes, running.values()):
                blocked = _blocked_by(ready, outcomes)
                if blocked is None and len(running) == _AT_ONCE:
                    continue  # a table that becomes ready later may have a longer chain of tables downstream
                del waiting[ready.table]
                if blocked or away or (stop is not None and stop.is_set()):
                    outcomes[ready.table] = Outcome(ready, because_of=blocked)
                    if blocked and not away and not outcomes[blocked].grown:
                        done(outcomes[ready.table])
                    continue
                running[pool.submit(build_one, lake, ready, full_refresh=ready.table in refresh)] = ready.table
            if running:
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    outcome = future.result()
                    name = running.pop(future)
                    if outcome.rest_since is not None and not (stop is not None and stop.is_set()):
                        done(outcome)
                        running[pool.submit(build_one, lake, outcome.table, full_refresh=False)] = name
                        continue
                    outcomes[name] = outcome
                    is_away = retry_policy is not None and isinstance(outcome.error, UnavailableError)
                    if retry_policy is not None and outcome.built and not away:
                        retry_policy.goes_on()
                    away = away or is_away
                    if not outcome.grown and not is_away:
                        done(outcome)
    return tuple(outcomes[table.table] for table in tables)


def mirror(lake: Lake, outcomes: Collection[Outcome] = ()) -> None:
    """Bring `metadata.quality_results` and `metadata.incremental_watermarks` up to what the tables themselves say.

    A table may have several `outcomes`: the results of each are recorded. Idempotent by table and build.
    """
    changed = any(outcome.built or outcome.error for outcome in outcomes)
    if outcomes and not changed:
        return
    entries = {table.table: read_build(load_table(lake.catalog, table.table)) for table in lake.pipeline.tables}
    builds = [
        CheckedBuild(name, entry.build_id, True, entry.expectations, entry.built_at_us) for name, entry in entries.items()
    ]
    for outcome in outcomes:
        name, plan = outcome.table.table, outcome.plan
        if outcome.built:
            entry = outcome.built.entry
            builds.append(CheckedBuild(name, entry.build_id, True, entry.expectations, entry.built_at_us))
        elif isinstance(outcome.error, QualityError):
            results = tuple(result for result in outcome.error.results if isinstance(result, CheckedExpectation))
            number = (plan.entry if plan else entries[name]).build_id + 1
            builds.append(CheckedBuild(name, number, False, results, time.time_ns() // 1_000))
    each_once = {(build.table, build.build_id, build.published): build for build in builds}
    in_order = sorted(each_once.values(), key=lambda build: build.build_id)
    record_results(lake.catalog, lake.settings, lake.pipeline.name, in_order)
    mirror_watermarks(lake.catalog, lake.settings, lake.pipeline, entries)


def build_one(
    lake: Lake, table: LayerTable, *, full_refresh: bool, begin: Callable[[TablePlan], None] = lambda plan: None
) -> Outcome:
    """Build one table and return the outcome, which has the error of a failed build.

    Calls `begin` with each plan before it is executed. Plans again at once if the table was compacted during the build, and
    does not wait for an outage to end.
    """
    lake.spark.sparkContext.setLocalProperty("spark.scheduler.pool", "builds")
    planned: TablePlan | None = None
    tries = 0

    def try_build() -> Outcome:
        nonlocal planned
        started = time.monotonic()

        def log_failed(error: BaseException) -> None:
            log_failed_try(lake, table, planned, error, tries=tries, seconds=time.monotonic() - started)

        try:
            with translate_outages():
                planned = plan_table(lake.catalog, lake.pipeline, table, full_refresh=full_refresh)
                if planned.action == "nothing":
                    return Outcome(table, planned)
                if has_grown(lake.catalog, lake.pipeline, planned, known=lake.columns):
                    return Outcome(table, planned, grown=True)
                begin(planned)
                built = build_table(lake, planned)
                log_built(lake.pipeline.name, built)
                return Outcome(table, planned, built)
        except (UnavailableError, CompactedError):
            raise
        except HeadraceError as error:
            log_failed(error)
            raise
        except (Py4JNetworkError, ConnectionError) as error:
            log_failed(error)
            ended = explain_end(lake.settings.logs)
            ended.__cause__ = error
            return Outcome(table, planned, error=ended)
        except Exception as error:  # whatever a table does to Spark, the others go on
            log_failed(error)
            raise BuildError(
                f"the build ended with {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}",
                where=str(table.table),
                next_step="Nothing was published. Read the traceback with: headrace logs build",
            ) from error

    def build_beside_compaction() -> Outcome:
        nonlocal tries
        tries += 1
        return BUILDS_BESIDE_COMPACTION.retry(try_build, on=lambda error: isinstance(error, CompactedError))

    try:
        return BUILDS.retry(build_beside_compaction, on=_is_retried)
    except HeadraceError as error:
        return Outcome(table, planned, error=error)


def _longest_chain_first(tables: Sequence[LayerTable]) -> list[LayerTable]:
    """Return tables by how many builds must follow theirs one after another: these decide how long all of them take."""
    following = {table.table: 0 for table in tables}
    for table in reversed(tables):
        for name in table.inputs:
            if name in following:
                following[name] = max(following[name], following[table.table] + 1)
    return sorted(tables, key=lambda table: -following[table.table])


def _is_retried(error: Exception) -> bool:
    """Return whether a build is tried again. One that was overtaken, as by a replay, is planned from what the table is now."""
    if isinstance(error, (UnavailableError, SpecError, QualityError, CompactedError)):
        return False
    return isinstance(error, (RetryableError, BuildError, TakenOverError))


def _ready(
    waiting: Mapping[TableName, LayerTable], outcomes: Mapping[TableName, Outcome], running: Collection[TableName]
) -> list[LayerTable]:
    return [
        candidate for candidate in waiting.values() if not any(name in waiting or name in running for name in candidate.inputs)
    ]


def _blocked_by(table: LayerTable, outcomes: Mapping[TableName, Outcome]) -> TableName | None:
    """Return the table whose failure stops this one."""
    for name in table.inputs:
        outcome = outcomes.get(name)
        if outcome and (outcome.error or outcome.because_of or outcome.grown):
            return outcome.because_of or name
    return None


def is_meant(table: LayerTable, name: str | None) -> bool:
    """Return whether a table is the one of this name, with or without its namespace; no name means every table."""
    return name is None or name in (table.table.name, str(table.table))
