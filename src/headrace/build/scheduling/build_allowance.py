"""Limit the build time of tables without a short `target_lag` while changes keep arriving. Pure logic."""

from __future__ import annotations

_SHARE = 0.2
"""The build seconds that these tables may use per second. A build of few rows costs tens of milliseconds regardless of their
number, so the cost of a steady stream of events is proportional to the number of builds."""

_BURST_SECONDS = 5.0
"""The maximum that can be saved up: occasional changes are built at once."""

_MOST_OF_BUILD_SECONDS = 0.25
"""The maximum that one build counts. A longer build has many rows, which would not cost less later."""

LONGEST_WAIT_SECONDS = 5.0
"""A change of this age is built regardless of the allowance."""


_MOMENT_SECONDS = 0.001
"""Added to the time at which the allowance is positive again."""


class BuildAllowance:
    """Build seconds that can be spent now. They are refilled over time, and may be overdrawn."""

    def __init__(self) -> None:
        self._seconds = _BURST_SECONDS
        self._at: float | None = None

    def spend(self, seconds: float) -> None:
        """Record the duration of a build."""
        self._seconds -= min(seconds, _MOST_OF_BUILD_SECONDS)

    def is_left(self, now: float) -> bool:
        """Return whether a build may start now."""
        passed = 0.0 if self._at is None else now - self._at
        self._seconds, self._at = min(_BURST_SECONDS, self._seconds + passed * _SHARE), now
        return self._seconds > 0

    def back_at(self, now: float) -> float:
        """Return when a build may start, if no other build ends before."""
        return now if self.is_left(now) else now - self._seconds / _SHARE + _MOMENT_SECONDS
