"""Build the tables of live pipelines on a small pool, as the scheduler decides.

One thread owns the scheduler: landing and builds put what happened into its inbox. Tables are planned from metadata at the
start, after an outage, when a replay has given tables back, and every half minute, so that changes by other processes are seen.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from queue import Empty, SimpleQueue
from threading import Lock

from headrace.app.mirroring import Mirror
from headrace.build.lake import Lake
from headrace.build.plan import TablePlan, plan_table
from headrace.build.scheduling.scheduler import MOST_BUILDS, Scheduler
from headrace.build.scheduling.table_state import Changes, ScheduledTable
from headrace.errors import HeadraceError, UnavailableError
from headrace.iceberg.catalog.outages import translate_outages
from headrace.iceberg.catalog.watched import WatchedCatalog
from headrace.logs import BUILD, log_failure, log_trace
from headrace.servers.embedded import Report
from headrace.sessions.building import Outcome, build_one, follow_inputs
from headrace.sessions.claims import read_claims
from headrace.sessions.retry_policy import RetryPolicy
from headrace.spec.model.layers import LayerTable
from headrace.spec.model.pipeline import TableName

_LOG = logging.getLogger(__name__)
_LOOK_SECONDS = 30.0
_CLAIMS_SECONDS = 1.0


@dataclass
class BuiltPipeline:
    """A pipeline whose tables are built. `finished` is called with every outcome, `looked` after all tables were planned."""

    lake: Lake
    mirror: Mirror
    finished: Callable[[Outcome], None]
    looked: Callable[[], None]


class LiveBuilds:
    """The tables of some pipelines while they are built live.

    A table that fails backs off alone. While the catalog or the object store is away, no table is started. An error that
    nobody expected ends `work` with it.
    """

    def __init__(
        self,
        pipelines: Sequence[BuiltPipeline],
        *,
        turn: Callable[[TableName], AbstractContextManager[object]],
        report: Report,
    ) -> None:
        self._pipelines = pipelines
        self._turn = turn
        self._report = report
        self._tables = {table.table: (table, pipeline) for pipeline in pipelines for table in pipeline.lake.pipeline.tables}
        self._catalogs = [WatchedCatalog(pipeline.lake.catalog) for pipeline in pipelines]
        self._scheduler = Scheduler([_scheduled(table) for table, _ in self._tables.values()])
        self._retry_policy = RetryPolicy("builds", report=report)
        self._inbox: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._growing = Lock()
        self._claimed: frozenset[TableName] = frozenset()
        self._looked_at: float | None = None
        self._look_at = self._held_until = float("-inf")
        self._is_ending = False

    def note_landed(self, pipeline: str, tables: Iterable[TableName]) -> None:
        """Note that raw tables of a pipeline have new checkpoints. Any thread may call this."""
        if not self._pipelines:
            return
        now = time.monotonic()
        self._inbox.put(partial(self._landed, pipeline, tuple(tables), Changes(now, now)))

    @property
    def is_busy(self) -> bool:
        """Whether a table is being built. Any thread may ask."""
        return self._scheduler.is_running

    def end(self) -> None:
        """Let `work` return when the builds that run have ended. Any thread may call this."""
        self._inbox.put(self._end)

    def work(self) -> None:
        """Build until `end` is called."""
        with ThreadPoolExecutor(max_workers=MOST_BUILDS, thread_name_prefix="build") as pool:
            while not self._is_ending:
                self._look_if_due()
                while (name := self._take()) is not None:
                    pool.submit(self._build, name)
                self._handle(self._next_wait())
        while self._scheduler.is_running:  # the pool has ended: all outcomes are in the inbox
            self._handle(0.0)

    # What the thread of `work` does.

    def _handle(self, seconds: float) -> None:
        """Take note of all that has happened; wait for the first of it."""
        try:
            self._inbox.get(timeout=seconds)()
            while True:
                self._inbox.get_nowait()()
        except Empty:
            return

    def _next_wait(self) -> float:
        now = time.monotonic()
        times = [self._look_at]
        if self._held_until <= now:
            times.append(self._scheduler.wake_at(now) or self._look_at)
            times += [now + _CLAIMS_SECONDS] if self._claimed else []
        return max(0.0, min(times) - now)

    def _take(self) -> TableName | None:
        now = time.monotonic()
        return None if self._is_ending or self._held_until > now else self._scheduler.take(now)

    def _look_if_due(self) -> None:
        """Plan all tables from metadata if it is time to, and leave claimed tables to the replay that writes them."""
        now = time.monotonic()
        if self._held_until > now:
            return
        claimed = self._read_claims()
        is_released = bool(self._claimed - claimed)
        self._claimed = claimed
        self._scheduler.claim(claimed)
        if now < self._look_at and not is_released:
            return
        try:
            self._look(now)
        except UnavailableError as error:
            self._wait_out(error)
        else:
            self._looked_at, self._look_at = now, now + _LOOK_SECONDS
            if self._scheduler.is_idle:
                self._retry_policy.goes_on()

    def _read_claims(self) -> frozenset[TableName]:
        claims = (read_claims(pipeline.lake.settings, pipeline.lake.pipeline.name) for pipeline in self._pipelines)
        return frozenset().union(*claims)

    def _look(self, now: float) -> None:
        """Mark the tables that have something to build. What others changed has happened since the last look."""
        changes = Changes(now if self._looked_at is None else self._looked_at, float("-inf"))
        for pipeline, catalog in zip(self._pipelines, self._catalogs, strict=True):
            with translate_outages():
                catalog.look()
            for table in pipeline.lake.pipeline.tables:
                if self._is_stale(pipeline.lake, catalog, table) and not self._scheduler.has_unseen(table.table):
                    self._scheduler.mark(table.table, changes, at_once=self._looked_at is None)
            pipeline.looked()

    def _is_stale(self, lake: Lake, catalog: WatchedCatalog, table: LayerTable) -> bool:
        try:
            with translate_outages():
                plan = plan_table(catalog, lake.pipeline, table)
        except UnavailableError:
            raise
        except Exception as error:  # its build finds out what is wrong, and says so
            log_trace(_LOG, f"{table.table} could not be planned", error, level=logging.DEBUG)
            return True
        if plan.entry.build_id:
            self._scheduler.note_built(table.table)
        return plan.action != "nothing"

    def _wait_out(self, error: HeadraceError) -> None:
        """Start nothing for a while, then plan all tables again."""
        now = time.monotonic()
        if self._held_until <= now:
            self._held_until = self._look_at = now + self._retry_policy.next_pause(error)

    def _landed(self, pipeline: str, tables: Sequence[TableName], changes: Changes) -> None:
        for table in tables:
            self._scheduler.moved(table, changes)
        for building in self._pipelines:
            if building.lake.pipeline.name == pipeline:
                building.mirror.note_landed()

    def _finish(self, outcome: Outcome) -> None:
        name = outcome.table.table
        _, pipeline = self._tables[name]
        if isinstance(outcome.error, UnavailableError):
            self._scheduler.put_back(name)
            self._wait_out(outcome.error)
            return
        if outcome.grown:
            self._scheduler.put_back(name)
            return
        if outcome.error:
            self._fail(outcome, pipeline)
            return
        built = outcome.built
        tells_cost = built is not None and (built.plan.action == "increment" or outcome.table.traits.rewrites_all)
        self._scheduler.succeed(
            name,
            changed=built is not None and built.entry.changed_in == built.entry.build_id,
            seconds=built.seconds if built is not None and tells_cost else None,
            rest_since=None if outcome.rest_since is None else _monotonic(outcome.rest_since),
        )
        if built is not None and self._held_until <= time.monotonic():
            self._retry_policy.goes_on()
        pipeline.mirror.add(outcome)
        pipeline.finished(replace(outcome, newest_change=self._scheduler.newest_change(name)))

    def _fail(self, outcome: Outcome, pipeline: BuiltPipeline) -> None:
        """Let a table back off, and tell which tables can't be built without it."""
        now, name = time.monotonic(), outcome.table.table
        self._scheduler.fail(name, now)
        pipeline.mirror.add(outcome)
        pipeline.finished(outcome)
        for held in self._scheduler.held_up_by(name, now):
            pipeline.finished(Outcome(self._tables[held][0], because_of=name))

    def _end(self) -> None:
        self._is_ending = True

    def _raise(self, error: BaseException) -> None:
        raise error

    # What the threads of the pool do.

    def _build(self, name: TableName) -> None:
        table, pipeline = self._tables[name]
        try:
            with self._turn(name):
                outcome = build_one(pipeline.lake, table, full_refresh=False, begin=self._begin)
            if outcome.grown:
                outcome = self._follow_inputs(outcome, pipeline)
        except BaseException as error:
            self._inbox.put(partial(self._raise, error))
        else:
            self._inbox.put(partial(self._finish, outcome))

    def _begin(self, plan: TablePlan) -> None:
        is_refresh = plan.action == "refresh"
        self._inbox.put(partial(self._scheduler.note_plan, plan.table.table, is_refresh=is_refresh))

    def _follow_inputs(self, outcome: Outcome, pipeline: BuiltPipeline) -> Outcome:
        """Analyse the pipeline's queries again for the columns that its raw tables have now."""
        try:
            with self._growing, translate_outages():
                pipeline.lake = follow_inputs(pipeline.lake)
        except UnavailableError as error:
            return replace(outcome, error=error)
        except HeadraceError as error:
            name = pipeline.lake.pipeline.name
            log_failure(_LOG, pipeline.lake.settings, BUILD, "the tables could not be analysed", error, pipeline=name)
            self._report(f"the tables could not be built: {error}")
            return replace(outcome, error=error, grown=False)
        return outcome


def _monotonic(moment: float) -> float:
    """Return a moment, in seconds since 1970, by the clock of the scheduler."""
    return time.monotonic() - (time.time() - moment)


def _scheduled(table: LayerTable) -> ScheduledTable:
    return ScheduledTable(table.table, frozenset(table.inputs), frozenset(table.followed), table.target_lag)
