"""Lands and builds, live: a table is rebuilt when its inputs have moved, and looked after when there is time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from threading import Event, Thread

from headrace.build.lake import Lake
from headrace.errors import HeadraceError, UnavailableError
from headrace.landing.landed import Batch
from headrace.runs.board import Board
from headrace.runs.building import Outcome, build, follow_inputs, mirror, open_lake
from headrace.runs.claims import read_claims
from headrace.runs.idle import Idleness, maintained
from headrace.runs.landing import Session, land
from headrace.runs.lock import build_lock
from headrace.runs.patience import Patience, for_a_command
from headrace.runs.publish_queue import PublishQueue, publish_queue
from headrace.runs.publishing import Publisher
from headrace.runs.waiting_requests import WaitingRequests
from headrace.services.embedded import Report
from headrace.spec.pipeline import TableName
from headrace.tables.away import away_if_broken

_FIRST_WAIT_SECONDS = 5.0
_LONGEST_WAIT_SECONDS = 300.0
_ROUND_SECONDS = 0.2

Turn = Callable[[], AbstractContextManager[object]]


def land_and_build(session: Session, *, stop: Event, board: Board, publisher: Publisher | None = None) -> None:
    """Lands batch after batch until `stop` is set; beside it, builds what that moves and publishes each table once it is built.

    When landing keeps up, the tables are maintained between the builds. When the catalog or the object store is away, all of
    them wait. Builds that end with an error that nobody expected end the run with it: nothing is lost, and a run that landed on
    beside tables that stay as they are would look as if all were well.
    """
    idleness = Idleness()
    if publisher is not None:
        publisher = replace(publisher, report=board.report, published=board.published)
    with (
        publish_queue(publisher, report=board.report, failed=stop.set) as queue,
        builds(session, built=board.built, report=board.report, end=stop, queue=queue, turn=idleness.turn) as moved,
        maintained(session, idleness, report=board.report),
    ):

        def landed(batch: Batch) -> None:
            idleness.behind = batch.behind
            board.landed(batch)
            moved.set()

        land(session, once=False, stop=stop, landed=landed, report=board.report, idle=board.idle)


@contextmanager
def builds(
    session: Session,
    *,
    built: Callable[[Outcome], None],
    report: Report,
    end: Event,
    queue: PublishQueue | None = None,
    turn: Turn = nullcontext,
) -> Iterator[Event]:
    """Builds the pipeline's tables beside landing while the block runs; gives the flag that says that something landed.

    `turn` is held for each round. An error that nobody expected sets `end`, and is raised when the block has ended.
    """
    landed, stop = Event(), Event()
    if not session.pipeline.tables:
        yield landed
        return
    with build_lock(session.settings, session.pipeline.name):
        lake = _open(session, report)
        landed.set()
        errors: list[BaseException] = []

        def follow() -> None:
            try:
                _follow(lake, landed, stop, built, report, queue, turn)
            except BaseException as error:
                errors.append(error)
                end.set()

        thread = Thread(target=follow, name="builds", daemon=True)
        thread.start()
        try:
            yield landed
        finally:
            stop.set()
            landed.set()
            thread.join()
        if errors:
            raise errors[0]


def _open(session: Session, report: Report) -> Lake:
    """Gives back the lake, with `metadata` brought up to what its tables say."""

    def attempt() -> Lake:
        with away_if_broken():
            lake = open_lake(session.settings, session.pipeline, session.spark)
            mirror(lake)
            return lake

    return for_a_command("builds", report=report).keep_trying(attempt, stop=Event())


def _follow(
    lake: Lake,
    landed: Event,
    stop: Event,
    built: Callable[[Outcome], None],
    report: Report,
    queue: PublishQueue | None,
    turn: Turn,
) -> None:
    """Builds round after round, and queues what has to be published.

    A table that fails is left alone for a while, longer each time, and then tried again; one that a replay writes anew is left
    alone until it has.
    """
    again_at: dict[TableName, float] = {}
    waits: dict[TableName, float] = {}
    claimed: frozenset[TableName] = frozenset()
    requests = WaitingRequests(lake, report)
    patience = Patience("builds", report=report)
    finished = built if queue is None else queue.after(built)
    while True:
        landed.wait(timeout=1.0 if again_at or claimed else None)
        if stop.is_set():
            return
        landed.clear()
        started = time.monotonic()
        claimed = read_claims(lake.settings, lake.pipeline.name)
        resting = {name for name, moment in again_at.items() if moment > started} | claimed
        try:
            with turn():
                outcomes = build(lake, done=finished, stop=stop, leave_out=resting, patience=patience)
            if any(each.grown for each in outcomes):
                with away_if_broken():
                    lake = follow_inputs(lake)
        except UnavailableError as error:
            stop.wait(patience.next_pause(error))
            landed.set()
            continue
        except HeadraceError as error:
            report(f"the tables could not be built: {error}")
            stop.wait(_FIRST_WAIT_SECONDS)
            landed.set()
            continue
        for outcome in outcomes:
            name = outcome.table.table
            if outcome.error:
                waits[name] = min(_LONGEST_WAIT_SECONDS, waits.get(name, _FIRST_WAIT_SECONDS / 2) * 2)
                again_at[name] = time.monotonic() + waits[name]
            elif name not in resting:
                waits.pop(name, None)
                again_at.pop(name, None)
        if queue is not None:
            queue.add()  # also what others built meanwhile, as a replay does
        try:
            with away_if_broken():
                requests.look()
        except UnavailableError as error:
            stop.wait(patience.next_pause(error))
            landed.set()
        stop.wait(max(0.0, _ROUND_SECONDS - (time.monotonic() - started)))
