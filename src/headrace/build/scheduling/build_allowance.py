"""How much build time tables without a short `target_lag` take while changes keep coming. Pure logic."""

from __future__ import annotations

_SHARE = 0.2
"""The build seconds that these tables may take in each second. A build of few rows costs tens of milliseconds whatever it
reads, so what a steady stream of events costs is the number of builds."""

_BURST_SECONDS = 5.0
"""How much time can be saved up: changes that come now and then are built at once."""

_MOST_OF_BUILD_SECONDS = 0.25
"""How much of a build counts. A longer one has many rows: to build these later would not cost less."""

LONGEST_WAIT_SECONDS = 5.0
"""A change that is this old is built whatever that takes."""


_MOMENT_SECONDS = 0.001
"""Until when something is left again after nothing was."""


class BuildAllowance:
    """Build seconds that can be spent now. They come back with time; more may be spent than there are, and are missing then."""

    def __init__(self) -> None:
        self._seconds = _BURST_SECONDS
        self._at: float | None = None

    def spend(self, seconds: float) -> None:
        """Note that a build took so long."""
        self._seconds -= min(seconds, _MOST_OF_BUILD_SECONDS)

    def is_left(self, now: float) -> bool:
        """Return whether a build may start now."""
        passed = 0.0 if self._at is None else now - self._at
        self._seconds, self._at = min(_BURST_SECONDS, self._seconds + passed * _SHARE), now
        return self._seconds > 0

    def back_at(self, now: float) -> float:
        """Return when a build may start, if none ends before."""
        return now if self.is_left(now) else now - self._seconds / _SHARE + _MOMENT_SECONDS
