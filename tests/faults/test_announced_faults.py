"""An injected fault prints a line to the application's stderr before it kills a process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

APPLICATION = "from headrace.faults import fault_point; fault_point('log')"
WORKER = """
import os, subprocess, sys
until_killed = "import signal; signal.alarm(30)"
worker = f"{until_killed}; from headrace.faults import fault_point; fault_point('log', driver_pid={os.getpid()})"
subprocess.run([sys.executable, "-c", worker], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
"""
LINE = "HEADRACE_FAULT: killing the application at step log\n"


def run(program: str, *, fault: str) -> tuple[int, str]:
    environ = {**os.environ, "HEADRACE_FAULT": fault}
    done = subprocess.run([sys.executable, "-c", program], env=environ, capture_output=True, text=True, timeout=60)
    return done.returncode, done.stderr


def test_kill_is_announced_by_the_application() -> None:
    assert run(APPLICATION, fault="kill-application@log") == (-signal.SIGKILL, LINE)


@pytest.mark.skipif(sys.platform != "linux", reason="a worker finds the application's stderr in /proc")
def test_kill_is_announced_by_a_worker_on_the_stderr_of_the_application() -> None:
    assert run(WORKER, fault="kill-application@log") == (-signal.SIGKILL, LINE)


def test_nothing_is_announced_at_other_steps() -> None:
    assert run(APPLICATION, fault="kill-application@commit") == (0, "")
