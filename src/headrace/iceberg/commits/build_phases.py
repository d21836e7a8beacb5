"""Measure the phases of a build: fetch, query, write and commit.

Functions that read or write are decorated with `@phase("fetch")` or `@phase("write")`; the build measures the other phases.
Outside of a build the decorator does nothing. Time counts for the innermost phase, and only on the build's own thread, so the
phases never add up to more than the build's duration.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Literal, get_args

Phase = Literal["fetch", "query", "write", "commit"]
PHASES: tuple[Phase, ...] = get_args(Phase)


@dataclass(frozen=True)
class BuildPhases:
    """Seconds that a build spent in each phase.

    `fetch` plans scans, and reads input rows and old rows through file indexes. `query` is Spark: analysis, execution, and
    scans of rows that are not fetched; a large build writes its files in the same pass. `write` stages files. `commit` is None
    until the build is committed.
    """

    fetch: float = 0.0
    query: float = 0.0
    write: float = 0.0
    commit: float | None = None


class PhaseTimer:
    """Sums the seconds of each phase. Not thread-safe: use it on the build's thread only."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._seconds: dict[Phase, float] = {}
        self._open: list[Phase] = []
        self._since = 0.0

    @contextmanager
    def measure(self, name: Phase) -> Iterator[None]:
        """Count the block's time as this phase instead of the enclosing one."""
        self._book()
        self._open.append(name)
        try:
            yield
        finally:
            self._book()
            self._open.pop()

    @property
    def phases(self) -> BuildPhases:
        """The seconds of the phases that have ended."""
        seconds = {name: round(self._seconds[name], 4) for name in PHASES if name in self._seconds}
        return BuildPhases(**seconds)

    def _book(self) -> None:
        now = self._clock()
        if self._open:
            self._seconds[self._open[-1]] = self._seconds.get(self._open[-1], 0.0) + now - self._since
        self._since = now


_timer: ContextVar[PhaseTimer | None] = ContextVar("headrace_build_phases", default=None)


@contextmanager
def time_phases() -> Iterator[PhaseTimer]:
    """Measure the phases of the build that runs in this block, on this thread."""
    timer = PhaseTimer()
    token = _timer.set(timer)
    try:
        yield timer
    finally:
        _timer.reset(token)


@contextmanager
def phase(name: Phase) -> Iterator[None]:
    """Count the block's time as a phase of the build on this thread, if any. Usable as a decorator."""
    timer = _timer.get()
    if timer is None:
        yield
        return
    with timer.measure(name):
        yield
