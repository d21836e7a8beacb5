"""Land and build live: landing loops, builds of what they move, publication, and maintenance when there is time."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from threading import Event, Thread

from headrace.app.board import Board
from headrace.app.live_builds import BuiltPipeline, LiveBuilds
from headrace.app.mirroring import mirroring
from headrace.app.publish_queue import PublishQueue, publish_queue
from headrace.background import in_background
from headrace.build.lake import Lake
from headrace.errors import HeadraceError
from headrace.garbage import collect_rarely, freeze_loaded
from headrace.iceberg.catalog.outages import translate_outages
from headrace.landing.landed import Batch
from headrace.logs import BUILD, LANDING, log_failure
from headrace.operations.maintain.maintenance_gate import MaintenanceGate, maintained
from headrace.servers.embedded import Report
from headrace.sessions.building import Outcome, mirror, open_lake
from headrace.sessions.landing import Session, land
from headrace.sessions.lock import build_lock
from headrace.sessions.publishing import Publisher
from headrace.sessions.retry_policy import for_command
from headrace.settings import Settings
from headrace.spec.model.pipeline import Pipeline, TableName

_LOG = logging.getLogger(__name__)
Turn = Callable[[TableName], AbstractContextManager[object]]


@dataclass(frozen=True)
class LivePipeline:
    """A pipeline that is ready to run: its session, its lake unless it builds nothing, and its publisher if it has one.

    Whoever has one holds the pipeline's lock for building.
    """

    session: Session
    lake: Lake | None
    publisher: Publisher | None = None

    @property
    def pipeline(self) -> Pipeline:
        return self.session.pipeline


def land_and_build(session: Session, *, stop: Event, board: Board, publisher: Publisher | None = None) -> None:
    """Run one pipeline until `stop` is set; see `run_live`."""
    with live_pipeline(session, publisher=publisher, report=board.report) as live:
        run_live([live], stop=stop, board=board)


@contextmanager
def live_pipeline(session: Session, *, report: Report, publisher: Publisher | None = None) -> Iterator[LivePipeline]:
    """Yield the pipeline of a session, its tables analysed and `metadata` brought up to them, while no one else builds it."""
    if not session.pipeline.tables:
        yield LivePipeline(session, None, publisher)
        return

    def attempt() -> Lake:
        with translate_outages():
            lake = open_lake(session.settings, session.pipeline, session.spark)
            mirror(lake)
            return lake

    with build_lock(session.settings, session.pipeline.name):
        lake = for_command("builds", report=report).keep_trying(attempt, stop=Event())
        yield LivePipeline(session, lake, publisher)


def run_live(pipelines: Sequence[LivePipeline], *, stop: Event, board: Board) -> None:
    """Land batch after batch until `stop` is set; beside it, build what that moves and publish each table once it is built.

    When landing keeps up, the tables are maintained. When the catalog or the object store is away, all of them wait. Builds
    that end with an unexpected error end the run with it: nothing is lost, and a run that landed on beside tables that stay as
    they are would look as if all were well. If landing of one of several pipelines ends with a HeadraceError, the others go on,
    and the error is raised at the end.
    """
    freeze_loaded()
    collect_rarely()
    gate = MaintenanceGate()
    first = pipelines[0].session
    with ExitStack() as stack:
        queues = [stack.enter_context(_queue(pipeline, stop=stop, board=board)) for pipeline in pipelines]
        live = stack.enter_context(
            builds(pipelines, built=board.built, report=board.report, end=stop, queues=queues, turn=gate.turn)
        )
        owners = [pipeline.pipeline for pipeline in pipelines]
        stack.enter_context(maintained(first.spark, first.settings, owners, gate, report=board.report))
        loops = [partial(_land, pipeline.session, stop=stop, board=board, gate=gate, builds=live) for pipeline in pipelines]
        if len(loops) == 1:
            loops[0]()
        else:
            by_name = {owner.name: loop for owner, loop in zip(owners, loops, strict=True)}
            _run_beside_each_other(by_name, stop, board.report, settings=first.settings)


def _queue(live: LivePipeline, *, stop: Event, board: Board) -> AbstractContextManager[PublishQueue]:
    publisher = live.publisher
    if publisher is not None:
        publisher = replace(publisher, report=board.report, published=board.published)
    return publish_queue(publisher, report=board.report, failed=stop.set)


def _land(session: Session, *, stop: Event, board: Board, gate: MaintenanceGate, builds: LiveBuilds) -> None:
    pipeline = session.pipeline
    tables = {f"{pipeline.name}.{stream.name}": stream.table for stream in pipeline.streams}

    def landed(batch: Batch) -> None:
        builds.note_landed(pipeline.name, [tables[part.label] for part in batch.landed])
        gate.note_behind(pipeline.name, batch.behind)
        board.landed(batch)

    land(session, once=False, stop=stop, landed=landed, report=board.report, idle=board.idle, is_busy=lambda: builds.is_busy)


def _run_beside_each_other(loops: Mapping[str, Callable[[], None]], stop: Event, report: Report, *, settings: Settings) -> None:
    """Run each loop in a thread of its own until all have ended; raise the first error. The log has all of them.

    A HeadraceError ends its own loop alone, any other error all of them.
    """
    errors: list[BaseException] = []

    def run(name: str, loop: Callable[[], None]) -> None:
        try:
            loop()
        except BaseException as error:
            errors.append(error)
            if not isinstance(error, HeadraceError):
                stop.set()
            elif not stop.is_set():
                report(f"{name}: landing has ended: {error}")
            log_failure(_LOG, settings, LANDING, f"{name}: landing has ended", error, pipeline=name)

    threads = [Thread(target=run, args=loop, name=f"landing {loop[0]}", daemon=True) for loop in loops.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


@contextmanager
def builds(
    pipelines: Sequence[LivePipeline],
    *,
    built: Callable[[Outcome], None],
    report: Report,
    end: Event,
    queues: Sequence[PublishQueue] | None = None,
    turn: Turn = nullcontext,
) -> Iterator[LiveBuilds]:
    """Build the pipelines' tables while the block runs, and queue what has to be published; landing notifies what is yielded.

    `turn` is held while a table is built. An unexpected error sets `end`, and is raised when the block has ended. The log has
    it in any case: the block may end with another error.
    """
    errors: list[BaseException] = []
    settings = pipelines[0].session.settings

    def fail(error: BaseException) -> None:
        errors.append(error)
        end.set()
        log_failure(_LOG, settings, BUILD, "builds have ended", error)

    with ExitStack() as stack:
        parts = []
        for number, live in enumerate(pipelines):
            if live.lake is not None:
                queue = queues[number] if queues else None
                parts.append(
                    BuiltPipeline(
                        live.lake,
                        stack.enter_context(mirroring(live.lake, report=report, failed=fail)),
                        finished=queue.after(built) if queue else built,
                        looked=queue.add if queue else lambda: None,
                    )
                )
        live_builds = LiveBuilds(parts, turn=turn, report=report)

        def work() -> None:
            try:
                live_builds.work()
            except BaseException as error:
                fail(error)

        if not parts:
            yield live_builds
            return
        with in_background(work, name="builds", end=live_builds.end):
            yield live_builds
    if errors:
        raise errors[0]
