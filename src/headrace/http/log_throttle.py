"""Limit log lines that clients can cause to a few per minute, so that a flood of requests can't fill the disk."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

LINES = 10
SECONDS = 60.0
_KEY_LENGTH = 60
_MOST_KEYS = 200


class LogThrottle(logging.Filter):
    """A filter that passes the first lines of a kind per minute, and counts the dropped ones in the first line after it."""

    def __init__(self, *, lines: int = LINES, seconds: float = SECONDS, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._lines = lines
        self._seconds = seconds
        self._clock = clock
        self._counts: dict[str, tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        key = f"{record.levelno} {str(record.msg)[:_KEY_LENGTH]}"
        now = self._clock()
        since, count = self._counts.get(key, (now, 0))
        if now - since > self._seconds:
            dropped = max(count - self._lines, 0)
            since, count = now, 0
            if dropped:
                record.msg = f"{record.msg} ({dropped:,} similar lines were dropped)"
        if len(self._counts) >= _MOST_KEYS and key not in self._counts:
            self._counts.clear()
        self._counts[key] = (since, count + 1)
        return count < self._lines


def throttle(logger: logging.Logger) -> None:
    """Add a LogThrottle to a logger. Idempotent."""
    if not any(isinstance(attached, LogThrottle) for attached in logger.filters):
        logger.addFilter(LogThrottle())
