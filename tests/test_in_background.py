"""Work in the background ends with its block."""

from __future__ import annotations

import threading

import pytest

from headrace.background import in_background


def test_background_work_runs_during_the_block() -> None:
    started, stop = threading.Event(), threading.Event()

    def work() -> None:
        started.set()
        assert threading.current_thread().name == "watcher"
        stop.wait()

    with in_background(work, name="watcher", end=stop.set):
        assert started.wait(60)
        assert not stop.is_set()
    assert stop.is_set()
    assert "watcher" not in {thread.name for thread in threading.enumerate()}


def test_background_work_ends_when_the_block_fails() -> None:
    stop = threading.Event()
    with pytest.raises(ValueError, match="no"), in_background(stop.wait, name="watcher", end=stop.set):
        raise ValueError("no")
    assert "watcher" not in {thread.name for thread in threading.enumerate()}
