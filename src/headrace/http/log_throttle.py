"""Log lines that clients can cause are written a few times a minute, and then counted: a flood can't fill the disk."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

LINES = 10
SECONDS = 60.0
_KEY_LENGTH = 60
_MOST_KEYS = 200


class LogThrottle(logging.Filter):
    """Lets the first lines of a kind through in each minute; the first of the next minute says how many were left out."""

    def __init__(self, *, lines: int = LINES, seconds: float = SECONDS, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._lines = lines
        self._seconds = seconds
        self._clock = clock
        self._seen: dict[str, tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        key = f"{record.levelno} {str(record.msg)[:_KEY_LENGTH]}"
        now = self._clock()
        since, count = self._seen.get(key, (now, 0))
        if now - since > self._seconds:
            left_out = max(count - self._lines, 0)
            since, count = now, 0
            if left_out:
                record.msg = f"{record.msg} ({left_out:,} more like it were left out)"
        if len(self._seen) >= _MOST_KEYS and key not in self._seen:
            self._seen.clear()
        self._seen[key] = (since, count + 1)
        return count < self._lines


def throttle(logger: logging.Logger) -> None:
    """Throttle a logger, once."""
    if not any(isinstance(each, LogThrottle) for each in logger.filters):
        logger.addFilter(LogThrottle())
