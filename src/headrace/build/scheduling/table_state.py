"""The state of one table in a live run: unprocessed changes, the running build, and the start time. Pure logic."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.backoff import TABLES
from headrace.spec.model.pipeline import TableName

LONG_BUILD_SECONDS = 5.0
"""A build that runs longer frees its worker for others, and quick downstream tables don't wait for it."""

_FIRST_UPSTREAM_WAIT_SECONDS = 30.0
"""How long a table that this run has not built yet waits for an upstream build: first builds are slow."""

_COALESCE_SECONDS = 0.5
"""The minimum time between two starts of a table, so that one build covers several landing batches."""

_WEIGHT_OF_NEWEST = 0.3
"""The weight of the newest build in the moving average of build durations."""

NEVER = float("-inf")


@dataclass(frozen=True)
class Changes:
    """Unprocessed changes of a table's inputs: when the oldest and the newest of them landed."""

    oldest: float
    newest: float

    def with_others(self, others: Changes | None) -> Changes:
        if others is None:
            return self
        return Changes(min(self.oldest, others.oldest), max(self.newest, others.newest))


@dataclass(frozen=True)
class ScheduledTable:
    """A table with its inputs. Changes of `followed` inputs make it due; the others are only looked up."""

    name: TableName
    inputs: frozenset[TableName]
    followed: frozenset[TableName]
    target_lag: float | None = None


@dataclass
class TableState:
    """The state of a table during a run.

    `building` are the changes that the running build has taken. The build counts as a refresh until its plan is known.
    """

    table: ScheduledTable
    unseen: Changes | None = None
    building: Changes | None = None
    at_once: bool = False
    started_at: float = NEVER
    is_refresh: bool = False
    is_built: bool = False
    seconds: float | None = None
    failures: int = 0
    retry_at: float = NEVER
    newest: float = NEVER

    @property
    def rests_until(self) -> float:
        """Until when the table delays its build, because its lag allows it or because it backs off after a failure."""
        lag = 0.0 if self.at_once or not self.is_built else self.table.target_lag or 0.0
        oldest = self.unseen.oldest if self.unseen else NEVER
        return max(self.retry_at, oldest + max(0.0, lag - (self.seconds or 0.0)))

    @property
    def ready_at(self) -> float:
        """When the table may start, without regard to other tables."""
        return max(self.rests_until, self.started_at + _COALESCE_SECONDS)

    def is_coming(self, now: float) -> bool:
        """Return whether the table is building, or will as soon as other tables allow it."""
        return self.building is not None or (self.unseen is not None and self.rests_until <= now)

    @property
    def is_quick(self) -> bool:
        return self.seconds is not None and self.seconds < LONG_BUILD_SECONDS

    @property
    def upstream_wait(self) -> float:
        """How many seconds the table waits for an upstream build: longer if a second build of this table would cost more."""
        return _FIRST_UPSTREAM_WAIT_SECONDS if self.seconds is None else max(LONG_BUILD_SECONDS, 2 * self.seconds)

    def runs_since(self, now: float, seconds: float = LONG_BUILD_SECONDS) -> bool:
        """Return whether the running build has taken at least `seconds`."""
        return self.building is not None and now - self.started_at >= seconds

    def owes(self, oldest: float) -> bool:
        """Return whether the table still has to build changes at least as old as `oldest`."""
        return any(changes is not None and changes.oldest <= oldest for changes in (self.unseen, self.building))

    def start(self, now: float) -> None:
        """Start a build of all unprocessed changes."""
        self.building, self.unseen, self.at_once = self.unseen, None, False
        self.started_at, self.is_refresh = now, True

    def succeed(self, *, seconds: float | None, rest_since: float | None = None) -> Changes:
        """End a successful build and return the processed changes: the ones before `rest_since`, if the build left a rest."""
        processed = self._end()
        if rest_since is not None:
            self.mark(Changes(max(processed.oldest, rest_since), processed.newest), at_once=False)
            processed = Changes(processed.oldest, min(processed.newest, rest_since))
        self.is_built = True
        self.failures, self.retry_at = 0, NEVER
        self.newest = max(self.newest, processed.newest)
        if seconds is not None:
            before = seconds if self.seconds is None else self.seconds
            self.seconds = before + _WEIGHT_OF_NEWEST * (seconds - before)
        return processed

    def put_back(self) -> None:
        """Put the changes of the running build back, to be built as soon as possible."""
        self.mark(self._end(), at_once=True)

    def back_off(self, now: float) -> None:
        """Back off after a failure, longer each time."""
        self.put_back()
        self.failures += 1
        self.retry_at = now + TABLES.pause(self.failures)

    def mark(self, changes: Changes, *, at_once: bool) -> None:
        self.unseen = changes.with_others(self.unseen)
        self.at_once = self.at_once or at_once

    def _end(self) -> Changes:
        assert self.building is not None, f"{self.table.name} is not running"
        taken, self.building, self.is_refresh = self.building, None, False
        return taken
