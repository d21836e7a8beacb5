"""Waits for a condition, and says what it waited for if that never comes."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

_T = TypeVar("_T")


def wait_until(condition: Callable[[], _T | None], *, what: str, seconds: float = 90.0, pause: float = 0.05) -> _T:
    """Return the condition's first true value; an AssertionError if there is none in time."""
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {seconds:.0f} s in vain: {what}")
        time.sleep(pause)
