"""A captured database in a demo: filled, played with, and changed by hand in psql, to be seen in the lake."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Event, Thread

import pyarrow as pa

from headrace.errors import LandingError, ServiceError
from headrace.landing.lander import Batch
from headrace.runs.board import Board
from headrace.runs.capturing import capture_of
from headrace.runs.catching_up import Way, wait_for_topics
from headrace.runs.landing import Report, Session, land
from headrace.runs.live import land_and_build
from headrace.services.psql import run_statement
from headrace.services.source_database import ready_database
from headrace.services.web import ask
from headrace.serving.query import run_query
from headrace.sources.comparison.source_tables import open_moment
from headrace.tables.catalog import open_catalog

SEEN_SECONDS = 180.0
_SEED_SECONDS = 600.0
_LOOK_SECONDS = 0.2
_FILLED = 409


@dataclass(frozen=True)
class Seen:
    """A statement that was typed into psql, what it said, and what a query of the lake answered so many seconds later."""

    change: str
    said: str
    see: str
    answer: pa.Table
    seconds: float


def land_database(session: Session, seeder: str, *, landed: Callable[[Batch], None], report: Report) -> None:
    """Fills the database unless it is filled, and lands all that it then holds."""
    answer = ask(f"{seeder}/seed/full", method="POST", timeout=_SEED_SECONDS)
    if answer.is_fine:
        rows = sum(answer.body["rows"].values())
        report(f"{rows:,} rows are in {len(answer.body['rows'])} tables of Postgres ({answer.body['seconds']:.1f} s)")
    elif answer.status != _FILLED:
        raise ServiceError(f"the seeder refused: {answer.message}", where=seeder, next_step="Read its log: headrace status")
    pipeline = session.pipeline
    dsn = _dsn(session, report=report)
    way = Way(
        pipeline, dsn, slot=pipeline.name, bootstrap_servers=session.bootstrap_servers, streams=pipeline.streams, tables=()
    )
    with open_moment(dsn) as moment:
        lsn = moment.lsn
    report("Debezium is reading the tables")
    wait_for_topics(way, lsn, seconds=SEEN_SECONDS)
    land(session, once=True, stop=Event(), landed=landed, report=report)


@contextmanager
def traffic(seeder: str, *, report: Report) -> Iterator[None]:
    """Keeps customers playing with the database while the block runs."""
    started = ask(f"{seeder}/traffic/start", method="POST")
    if started.is_fine:
        report(f"Customers come and go, {started.body['rate']:.0f} transactions a second (POST {seeder}/traffic/stop ends it)")
    try:
        yield
    finally:
        if started.is_fine:
            ask(f"{seeder}/traffic/stop", method="POST")


def change_by_hand(session: Session, *, board: Board) -> Seen | None:
    """Gives back how the pipeline's own change came through, while all is landed and built; None if it names none."""
    by_hand = capture_of(session.pipeline).by_hand
    if by_hand is None:
        return None
    dsn = _dsn(session, report=board.report)
    catalog = open_catalog(session.settings)
    with _live(session, board):
        before = run_query(catalog, by_hand.see)
        said = run_statement(dsn, by_hand.change)
        started = time.monotonic()
        while time.monotonic() < started + SEEN_SECONDS:
            answer = run_query(catalog, by_hand.see)
            if answer.num_rows and not answer.equals(before):
                return Seen(by_hand.change, said, by_hand.see, answer, time.monotonic() - started)
            time.sleep(_LOOK_SECONDS)
    raise LandingError(
        f"the change was not seen within {SEEN_SECONDS:.0f} seconds",
        where=f"pipeline {session.pipeline.name}",
        next_step=f"See where it stands: headrace connectors status {session.pipeline.name}   and: headrace status",
    )


@contextmanager
def _live(session: Session, board: Board) -> Iterator[None]:
    stop = Event()
    thread = Thread(target=land_and_build, args=(session,), kwargs={"stop": stop, "board": board}, name="live", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _dsn(session: Session, *, report: Report) -> str:
    return ready_database(session.settings, capture_of(session.pipeline), report=report).dsn
