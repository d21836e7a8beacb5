"""Questions from a page: read-only SQL with a bound on rows, on time, on memory and on how many are answered at once."""

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
"""How many may wait for a seat. Each takes a thread of the server, which has 40 for all requests."""
_PATIENCE_SECONDS = 1.0


class QueryService:
    """Where questions are answered, a few at once, each in a process of its own; a BusyError where all seats are taken."""

    def __init__(self, *, seats: int = _AT_ONCE, limits: WorkerLimits = LIMITS) -> None:
        self._seats = BoundedSemaphore(seats)
        self._places = BoundedSemaphore(seats + _WAITING)
        self._pool = QueryPool(limits)

    def ask(self, catalog: Catalog, sql: str, *, most_rows: int = MOST_ROWS, most_seconds: float = MOST_SECONDS) -> Answer:
        """Return the answer to one SELECT; what can't be answered is a QueryError in plain words."""
        if not self._places.acquire(blocking=False):
            raise _busy()
        try:
            if not self._seats.acquire(timeout=_PATIENCE_SECONDS):
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
    return BusyError("other queries are running already", where="query", next_step="Wait until one of them is done.")


def _find_sources(catalog: Catalog, tables: tuple[str, ...]) -> Sources:
    storage = dict(Storage.of(catalog.properties).options)
    return Sources({name: scan_source(catalog.load_table(name)) for name in tables}, storage)
