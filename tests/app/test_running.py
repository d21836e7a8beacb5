"""`is_running` checks a pipeline's lock without blocking it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from threading import Event, Thread, Timer

from headrace.file_locks import try_lock, unlock
from headrace.sessions.lock import is_running, pipeline_lock
from headrace.settings import load_settings

HOLD = """
import sys
from pathlib import Path
from threading import Event, Thread
from headrace.sessions.lock import pipeline_lock
from headrace.settings import load_settings
with pipeline_lock(load_settings(flags={}, environ={}, folder=Path(sys.argv[1])), "mine", take_over=False):
    print("held", flush=True)
    sys.stdin.readline()
"""


def test_is_running_while_the_lock_is_held(tmp_path: Path) -> None:
    settings = load_settings(flags={}, environ={}, folder=tmp_path)
    assert not is_running(settings, "mine")
    with pipeline_lock(settings, "mine", take_over=False):
        assert is_running(settings, "mine")
        assert not is_running(settings, "other")
    assert not is_running(settings, "mine"), "this process lives on, and holds nothing"


def test_is_running_is_false_after_the_holder_was_killed(tmp_path: Path) -> None:
    settings = load_settings(flags={}, environ={}, folder=tmp_path)
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout
        assert holder.stdout.readline() == "held\n"
        assert is_running(settings, "mine")
        holder.send_signal(signal.SIGKILL)
        holder.wait(10)
        assert not is_running(settings, "mine")


def test_is_running_ignores_the_pid_in_the_file(tmp_path: Path) -> None:
    """Containers that share a home reuse pids and can't see each other's processes."""
    settings = load_settings(flags={}, environ={}, folder=tmp_path)
    lock = settings.home / "locks" / "mine.lock"
    with pipeline_lock(settings, "mine", take_over=False):
        assert lock.read_text() == f"{os.getpid()} on {socket.gethostname()}\n"
        lock.write_text("999999999\n")
        assert is_running(settings, "mine")
    lock.write_text(f"{os.getpid()}\n")
    assert not is_running(settings, "mine")


def test_is_running_creates_no_file(tmp_path: Path) -> None:
    settings = load_settings(flags={}, environ={}, folder=tmp_path)
    assert not is_running(settings, "mine")
    assert not settings.home.exists()


def test_is_running_does_not_block_the_lock(tmp_path: Path) -> None:
    settings = load_settings(flags={}, environ={}, folder=tmp_path)
    ended = Event()

    def look() -> None:
        while not ended.is_set():
            is_running(settings, "mine")

    lookers = [Thread(target=look) for _ in range(4)]
    for reader in lookers:
        reader.start()
    try:
        for _ in range(100):
            with pipeline_lock(settings, "mine", take_over=False):
                assert is_running(settings, "mine")
    finally:
        ended.set()
        for reader in lookers:
            reader.join()


def test_suspended_is_running_delays_the_lock_without_refusing_it(tmp_path: Path) -> None:
    """The check holds a shared lock briefly, and may be suspended while it does."""
    settings = load_settings(flags={}, environ={}, folder=tmp_path)
    look = try_lock(settings.home / "locks" / "mine.lock", shared=True)
    assert look is not None
    Timer(0.8, unlock, [look]).start()
    with pipeline_lock(settings, "mine", take_over=False):
        assert is_running(settings, "mine")
