"""Questions from a page: read-only SQL with a bound on rows, on time and on how many are answered at once."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from threading import BoundedSemaphore

import pyarrow as pa
from pyiceberg.catalog import Catalog

from headrace.errors import UnavailableError
from headrace.serving.query import Bound, run_query
from headrace.serving.values import as_text, is_number

MOST_ROWS = 1_000
MOST_SECONDS = 20.0
_AT_ONCE = 2
_PATIENCE_SECONDS = 1.0
_MEMORY = "1GB"
_EXACT = 2**53

Cell = str | int | float | bool | None


@dataclass(frozen=True)
class Answer:
    """The first rows of a result; `truncated` says that there are more. Numbers are such where JSON holds them exactly."""

    columns: tuple[tuple[str, str], ...]
    rows: tuple[tuple[Cell, ...], ...]
    truncated: bool
    seconds: float

    def to_json(self) -> dict[str, object]:
        return {
            "columns": [{"name": name, "type": kind, "number": is_number(kind)} for name, kind in self.columns],
            "rows": [list(row) for row in self.rows],
            "truncated": self.truncated,
            "seconds": round(self.seconds, 3),
        }


class Desk:
    """Where questions are answered, a few at once: whoever comes when all seats are taken is asked to wait."""

    def __init__(self, *, seats: int = _AT_ONCE) -> None:
        self._seats = BoundedSemaphore(seats)

    def ask(self, catalog: Catalog, sql: str, *, most_rows: int = MOST_ROWS, most_seconds: float = MOST_SECONDS) -> Answer:
        """Gives back the answer to one SELECT; what can't be answered is a QueryError in plain words."""
        if not self._seats.acquire(timeout=_PATIENCE_SECONDS):
            raise UnavailableError("other queries are running already", next_step="Wait until one of them is done.")
        started = time.monotonic()
        try:
            found = run_query(catalog, sql, bound=Bound(rows=most_rows + 1, seconds=most_seconds, memory=_MEMORY))
        finally:
            self._seats.release()
        return make_answer(found, most_rows=most_rows, seconds=time.monotonic() - started)


def make_answer(found: pa.Table, *, most_rows: int, seconds: float = 0.0) -> Answer:
    """Gives back the first rows of a table as a page shows them."""
    columns = tuple((str(field.name), str(field.type)) for field in found.schema)
    first = found.slice(0, most_rows)
    values: Sequence[Sequence[object]] = [first.column(at).to_pylist() for at in range(len(columns))]
    rows = tuple(tuple(as_cell(column[at]) for column in values) for at in range(first.num_rows))
    return Answer(columns, rows, found.num_rows > most_rows, seconds)


def as_cell(value: object) -> Cell:
    if value is None or isinstance(value, (bool, str)):
        return value
    if (isinstance(value, int) and abs(value) <= _EXACT) or (isinstance(value, float) and math.isfinite(value)):
        return value
    return as_text(value, null="")
