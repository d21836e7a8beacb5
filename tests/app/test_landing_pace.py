"""The pace of landing: a batch starts at once, unless builds are running."""

from __future__ import annotations

import time
from threading import Event
from types import SimpleNamespace
from typing import Any, cast

from headrace.sessions import landing
from headrace.sessions.landing import Session, land

BATCH = SimpleNamespace(notes=(), behind=0)


class Lander:
    """A lander that always has a batch, and sets `stop` after a number of them."""

    def __init__(self, stop: Event, *, batches: int) -> None:
        self.stop, self.left = stop, batches
        self.stopped: dict[str, Any] = {}
        self.retried: frozenset[str] = frozenset()

    def land_batch(self, *_: object, until: object) -> SimpleNamespace:
        self.left -= 1
        if not self.left:
            self.stop.set()
        return BATCH


def seconds_of(batches: int, *, busy_until: float) -> float:
    """Return the duration of a number of batches while builds run for the first seconds."""
    stop, started = Event(), time.monotonic()
    session = SimpleNamespace(
        lander=Lander(stop, batches=batches),
        spark=SimpleNamespace(sparkContext=None),
        pipeline=SimpleNamespace(trigger_seconds=0.0),
    )
    land(
        cast("Session", session),
        once=False,
        stop=stop,
        landed=lambda batch: None,
        report=lambda sentence: None,
        is_busy=lambda: time.monotonic() - started < busy_until,
    )
    return time.monotonic() - started


def test_landing_does_not_pause_without_builds() -> None:
    assert seconds_of(5, busy_until=0.0) < 0.5


def test_landing_slows_down_during_builds(monkeypatch: Any) -> None:
    monkeypatch.setattr(landing, "_BUSY_SECONDS", 0.4)
    assert 0.8 <= seconds_of(3, busy_until=10.0) < 1.6


def test_landing_resumes_when_the_builds_end(monkeypatch: Any) -> None:
    monkeypatch.setattr(landing, "_BUSY_SECONDS", 5.0)
    assert 0.3 <= seconds_of(3, busy_until=0.3) < 1.5
