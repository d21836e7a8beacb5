"""Change a row of a captured database in psql, and measure how long the lake takes to have it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from threading import Event

import pyarrow as pa

from headrace.app.board import Board
from headrace.app.live import land_and_build
from headrace.background import in_background
from headrace.errors import LandingError
from headrace.iceberg.catalog.tables import open_catalog
from headrace.servers.psql import run_statement
from headrace.servers.source_database import find_database
from headrace.serving.sql.query import run_query
from headrace.sessions.capturing import capture_of
from headrace.sessions.landing import Session
from headrace.spec.model.pipeline import ByHand

_TIMEOUT_SECONDS = 180.0
_POLL_SECONDS = 0.2


@dataclass(frozen=True)
class ManualChange:
    """A statement and psql's output, and a query of the lake whose answer had changed after `seconds`."""

    change: str
    output: str
    query: str
    answer: pa.Table
    seconds: float


def change_by_hand(session: Session, by_hand: ByHand, *, board: Board) -> ManualChange:
    """Run the change in psql while the pipeline is live, and return the first new answer of the lake.

    Raises a LandingError if the lake does not have the change in time.
    """
    database = find_database(session.settings, capture_of(session.pipeline))
    assert database is not None
    catalog = open_catalog(session.settings)
    with _live(session, board):
        before = run_query(catalog, by_hand.see)
        output = run_statement(database.dsn, by_hand.change)
        started = time.monotonic()
        while time.monotonic() < started + _TIMEOUT_SECONDS:
            answer = run_query(catalog, by_hand.see)
            if answer.num_rows and not answer.equals(before):
                return ManualChange(by_hand.change, output, by_hand.see, answer, time.monotonic() - started)
            time.sleep(_POLL_SECONDS)
    raise LandingError(
        f"the change did not reach the lake within {_TIMEOUT_SECONDS:.0f} seconds",
        where=f"pipeline {session.pipeline.name}",
        next_step=f"Check its progress: headrace connectors status {session.pipeline.name}   and: headrace status",
    )


@contextmanager
def _live(session: Session, board: Board) -> Iterator[None]:
    stop = Event()
    with in_background(partial(land_and_build, session, stop=stop, board=board), name="live", end=stop.set):
        yield
