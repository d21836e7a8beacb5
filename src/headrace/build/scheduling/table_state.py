"""One table of a live run: what it has not seen yet, what it builds, and when it may start. Pure logic."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.spec.model.pipeline import TableName

LONG_BUILD_SECONDS = 5.0
"""A build that has run for so long leaves its worker to others, and downstream tables that are quick don't wait for it."""

_PATIENCE_AT_FIRST_SECONDS = 30.0
"""For how long an upstream build is waited for by a table that this run has not built yet: all builds are slow at first."""

_COALESCE_SECONDS = 0.5
"""A table starts at most once in so many seconds, so that the changes of several landing batches share a build."""

_FIRST_PAUSE_SECONDS = 5.0
_LONGEST_PAUSE_SECONDS = 300.0
_WEIGHT_OF_NEWEST = 0.3
"""How much the newest build counts in the moving average of what a build takes."""

NEVER = float("-inf")


@dataclass(frozen=True)
class Changes:
    """Changes of inputs that a table has not seen yet: when the oldest and the newest of them landed."""

    oldest: float
    newest: float

    def with_others(self, others: Changes | None) -> Changes:
        if others is None:
            return self
        return Changes(min(self.oldest, others.oldest), max(self.newest, others.newest))


@dataclass(frozen=True)
class ScheduledTable:
    """A table with its inputs. Changes of those in `followed` make it due; the others are only looked up."""

    name: TableName
    inputs: frozenset[TableName]
    followed: frozenset[TableName]
    target_lag: float | None = None


@dataclass
class TableState:
    """What is known of a table while the run goes on.

    `building` are the changes that its running build has taken. That one counts as a refresh until its plan is known.
    """

    table: ScheduledTable
    unseen: Changes | None = None
    building: Changes | None = None
    at_once: bool = False
    started_at: float = NEVER
    is_refresh: bool = False
    is_built: bool = False
    seconds: float | None = None
    pause: float = 0.0
    retry_at: float = NEVER
    newest: float = NEVER

    @property
    def rests_until(self) -> float:
        """Until when the table leaves its changes unseen, because its lag allows that or because it failed."""
        lag = 0.0 if self.at_once or not self.is_built else self.table.target_lag or 0.0
        oldest = self.unseen.oldest if self.unseen else NEVER
        return max(self.retry_at, oldest + max(0.0, lag - (self.seconds or 0.0)))

    @property
    def ready_at(self) -> float:
        """When the table may start, as far as it depends on itself."""
        return max(self.rests_until, self.started_at + _COALESCE_SECONDS)

    def is_coming(self, now: float) -> bool:
        """Return whether the table is built now or as soon as others let it."""
        return self.building is not None or (self.unseen is not None and self.rests_until <= now)

    @property
    def is_quick(self) -> bool:
        return self.seconds is not None and self.seconds < LONG_BUILD_SECONDS

    @property
    def retry_policy(self) -> float:
        """For how many seconds of its build an upstream table is waited for: the more a second build of this one would cost."""
        return _PATIENCE_AT_FIRST_SECONDS if self.seconds is None else max(LONG_BUILD_SECONDS, 2 * self.seconds)

    def runs_since(self, now: float, seconds: float = LONG_BUILD_SECONDS) -> bool:
        """Return whether a build of the table has run for so long."""
        return self.building is not None and now - self.started_at >= seconds

    def owes(self, oldest: float) -> bool:
        """Return whether the table has yet to build changes that are at least as old as `oldest`."""
        return any(changes is not None and changes.oldest <= oldest for changes in (self.unseen, self.building))

    def start(self, now: float) -> None:
        """Take all that is unseen."""
        self.building, self.unseen, self.at_once = self.unseen, None, False
        self.started_at, self.is_refresh = now, True

    def succeed(self, *, seconds: float | None, rest_since: float | None = None) -> Changes:
        """Return the changes that the table has now seen: not those from `rest_since` on, which the build has left."""
        seen = self._end()
        if rest_since is not None:
            self.mark(Changes(max(seen.oldest, rest_since), seen.newest), at_once=False)
            seen = Changes(seen.oldest, min(seen.newest, rest_since))
        self.is_built = True
        self.pause, self.retry_at = 0.0, NEVER
        self.newest = max(self.newest, seen.newest)
        if seconds is not None:
            before = seconds if self.seconds is None else self.seconds
            self.seconds = before + _WEIGHT_OF_NEWEST * (seconds - before)
        return seen

    def put_back(self) -> None:
        """Leave what the build took unseen, to be built as soon as possible."""
        self.mark(self._end(), at_once=True)

    def back_off(self, now: float) -> None:
        """Wait after a failure, longer each time."""
        self.put_back()
        self.pause = min(_LONGEST_PAUSE_SECONDS, max(_FIRST_PAUSE_SECONDS, self.pause * 2))
        self.retry_at = now + self.pause

    def mark(self, changes: Changes, *, at_once: bool) -> None:
        self.unseen = changes.with_others(self.unseen)
        self.at_once = self.at_once or at_once

    def _end(self) -> Changes:
        assert self.building is not None, f"{self.table.name} is not running"
        taken, self.building, self.is_refresh = self.building, None, False
        return taken
