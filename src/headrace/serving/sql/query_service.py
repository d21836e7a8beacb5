"""Run queries of the web pages: read-only SQL with limits on rows, time, memory and concurrency."""

from __future__ import annotations

from threading import BoundedSemaphore

from pyiceberg.catalog import Catalog

from headrace.errors import BusyError
from headrace.iceberg.catalog.tables import list_tables
from headrace.iceberg.files.storage import Storage
from headrace.serving.sql.answer import Answer
from headrace.serving.sql.query import scan_source
from headrace.serving.sql.query_pool import LIMITS, QueryPool, Request, Sources
from headrace.serving.sql.query_worker import WorkerLimits

MOST_ROWS = 1_000
MOST_SECONDS = 20.0
_AT_ONCE = 2
_WAITING = 6
"""The number of queries that may wait for a worker. Each occupies one of the server's 40 threads."""
_WAIT_SECONDS = 1.0


class QueryService:
    """Runs a few queries at a time, each in a separate process, and raises a BusyError if too many are waiting."""

    def __init__(self, *, seats: int = _AT_ONCE, limits: WorkerLimits = LIMITS) -> None:
        self._seats = BoundedSemaphore(seats)
        self._places = BoundedSemaphore(seats + _WAITING)
        self._pool = QueryPool(limits)

    def ask(self, catalog: Catalog, sql: str, *, most_rows: int = MOST_ROWS, most_seconds: float = MOST_SECONDS) -> Answer:
        """Return the answer to one SELECT.

        Raises a QueryError for a query that is not allowed, fails, or reaches a limit.
        """
        if not self._places.acquire(blocking=False):
            raise _busy()
        try:
            if not self._seats.acquire(timeout=_WAIT_SECONDS):
                raise _busy()
            try:
                request = Request(sql, list_tables(catalog), most_rows, most_seconds)
                return self._pool.run(request, lambda tables: _find_sources(catalog, tables))
            finally:
                self._seats.release()
        finally:
            self._places.release()

    def close(self) -> None:
        self._pool.close()


def _busy() -> BusyError:
    return BusyError("too many queries are running", where="query", next_step="Try again in a few seconds.")


def _find_sources(catalog: Catalog, tables: tuple[str, ...]) -> Sources:
    storage = dict(Storage.of(catalog.properties).options)
    return Sources({name: scan_source(catalog.load_table(name)) for name in tables}, storage)
