"""A row of a captured database is changed by hand in psql, and seen in the lake."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Event, Thread

import pyarrow as pa

from headrace.app.board import Board
from headrace.app.live import land_and_build
from headrace.errors import LandingError
from headrace.iceberg.catalog.tables import open_catalog
from headrace.servers.psql import run_statement
from headrace.servers.source_database import find_database
from headrace.serving.sql.query import run_query
from headrace.sessions.capturing import capture_of
from headrace.sessions.landing import Session
from headrace.spec.model.pipeline import ByHand

_SEEN_SECONDS = 180.0
_LOOK_SECONDS = 0.2


@dataclass(frozen=True)
class Seen:
    """A statement that was typed into psql, what that said, and what a query of the lake answered so many seconds later."""

    change: str
    said: str
    see: str
    answer: pa.Table
    seconds: float


def change_by_hand(session: Session, by_hand: ByHand, *, board: Board) -> Seen:
    """Return how a change came through, while the pipeline is landed and built."""
    database = find_database(session.settings, capture_of(session.pipeline))
    assert database is not None
    catalog = open_catalog(session.settings)
    with _live(session, board):
        before = run_query(catalog, by_hand.see)
        said = run_statement(database.dsn, by_hand.change)
        started = time.monotonic()
        while time.monotonic() < started + _SEEN_SECONDS:
            answer = run_query(catalog, by_hand.see)
            if answer.num_rows and not answer.equals(before):
                return Seen(by_hand.change, said, by_hand.see, answer, time.monotonic() - started)
            time.sleep(_LOOK_SECONDS)
    raise LandingError(
        f"the change was not seen within {_SEEN_SECONDS:.0f} seconds",
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
