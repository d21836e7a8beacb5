"""Whether a pipeline runs is told without touching its lock."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from headrace.runs.lock import is_running, pipeline_lock
from headrace.settings import load_settings

HOLD = """
import sys
from pathlib import Path
from headrace.runs.lock import pipeline_lock
from headrace.settings import load_settings
with pipeline_lock(load_settings(flags={}, environ={}, folder=Path(sys.argv[1])), "mine", take_over=False):
    print("held", flush=True)
    sys.stdin.readline()
"""


def test_as_long_as_the_lock_is_held(tmp_path: Path) -> None:
    settings = load_settings(flags={}, environ={}, folder=tmp_path)
    assert not is_running(settings, "mine")
    with pipeline_lock(settings, "mine", take_over=False):
        assert is_running(settings, "mine")
        assert not is_running(settings, "other")
    assert not is_running(settings, "mine"), "this process lives on, and holds nothing"


def test_not_when_its_holder_was_killed(tmp_path: Path) -> None:
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


def test_not_when_its_number_is_another_process_now(tmp_path: Path) -> None:
    settings = load_settings(flags={}, environ={}, folder=tmp_path)
    lock = settings.home / "locks" / "mine.lock"
    lock.parent.mkdir(parents=True)
    lock.write_text(f"{os.getpid()}\n")
    os.utime(lock, (1, 1))
    assert not is_running(settings, "mine"), "the file is older than the process of that number"
