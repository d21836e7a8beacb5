"""Servers as processes, with small Python programs instead of a JVM."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from headrace.errors import ServiceError
from headrace.servers import process
from headrace.servers.process import Launch, ServiceState
from tests.support.processes import is_gone
from tests.support.waiting import wait_until

SLEEP = (sys.executable, "-c", "import time; print('hello', flush=True); time.sleep(600)")

PARENT = """
import sys, time
from pathlib import Path
from headrace.servers import process
home = Path(sys.argv[1])
lease = process.take_lease(home, "sleeper")
launch = process.Launch("sleeper", ("sleep", "600"), home, {"PATH": "/usr/bin:/bin"}, 1)
print(process.start(home, launch, detached=sys.argv[2] == "detached").pid, flush=True)
time.sleep(600)
"""


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    process.stop(tmp_path, "sleeper", grace=1.0)


def launch(home: Path, command: tuple[str, ...] = SLEEP) -> Launch:
    return Launch("sleeper", command, home, os.environ, 1234)


def start_parent(home: Path, mode: str, environ: dict[str, str]) -> tuple[subprocess.Popen[str], int]:
    parent = subprocess.Popen([sys.executable, "-c", PARENT, str(home), mode], stdout=subprocess.PIPE, text=True, env=environ)
    assert parent.stdout is not None
    return parent, int(parent.stdout.readline())


def kill(parent: subprocess.Popen[str]) -> None:
    parent.kill()
    parent.communicate()


def test_start_is_found_again_logs_and_stops(home: Path) -> None:
    lease = process.take_lease(home, "sleeper")
    state = process.start(home, launch(home), detached=False)
    assert process.read_state(home, "sleeper") == state
    assert process.find_process(state) is not None
    wait_until(lambda: process.log_path(home, "sleeper").read_text() == "hello\n", what="its word")
    assert process.end_lease(home, "sleeper", lease)
    assert is_gone(state.pid)
    assert process.read_state(home, "sleeper") is None


def test_log_of_the_run_before_is_kept(home: Path) -> None:
    for word in ("first", "second"):
        lease = process.take_lease(home, "sleeper")
        process.start(home, launch(home, (sys.executable, "-c", f"print('{word}')")), detached=False)
        wait_until(lambda: "ended with 0" in process.log_path(home, "sleeper").read_text(), what="its end")
        process.end_lease(home, "sleeper", lease)
    assert "second" in process.log_path(home, "sleeper").read_text()
    assert "first" in process.log_path(home, "sleeper").with_name("sleeper.log.1").read_text()


def test_no_orphan_after_sigkill_of_the_parent(home: Path, child_environ: dict[str, str]) -> None:
    parent, pid = start_parent(home, "owned", child_environ)
    assert not is_gone(pid)
    kill(parent)
    wait_until(lambda: is_gone(pid), what="its end")
    wait_until(lambda: process.read_state(home, "sleeper") is None, what="its state to go")


def test_detached_outlives_its_parent_until_it_is_stopped(home: Path, child_environ: dict[str, str]) -> None:
    parent, pid = start_parent(home, "detached", child_environ)
    kill(parent)
    time.sleep(1.0)
    assert not is_gone(pid)
    assert process.stop(home, "sleeper")
    assert is_gone(pid)


def test_server_lives_while_another_command_uses_it(home: Path, child_environ: dict[str, str]) -> None:
    parent, pid = start_parent(home, "owned", child_environ)
    lease = process.take_lease(home, "sleeper")
    kill(parent)
    time.sleep(1.0)
    assert not is_gone(pid)
    process.end_lease(home, "sleeper", lease)
    assert is_gone(pid)


def test_up_keeps_a_server_that_a_command_started(home: Path, child_environ: dict[str, str]) -> None:
    parent, pid = start_parent(home, "owned", child_environ)
    state = wait_until(lambda: process.read_state(home, "sleeper"), what="its state")
    process.detach(home, state)
    kill(parent)
    time.sleep(1.0)
    assert not is_gone(pid)


def test_pid_that_now_belongs_to_another_program_is_not_killed(home: Path) -> None:
    other = subprocess.Popen([*SLEEP], stdout=subprocess.DEVNULL)
    try:
        state = ServiceState("sleeper", other.pid, time.time() - 3600, 1234, "", "", owner=None, ready=True)
        process.write_state(home, state)
        assert process.find_process(state) is None
        assert not process.stop(home, "sleeper")
        assert other.poll() is None
        assert process.read_state(home, "sleeper") is None
    finally:
        other.kill()
        other.wait()


def test_server_that_ignores_sigterm_is_killed_after_the_grace(home: Path) -> None:
    deaf = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('on', flush=True); time.sleep(60)"
    lease = process.take_lease(home, "sleeper")
    state = process.start(home, launch(home, (sys.executable, "-c", deaf)), detached=False)
    wait_until(lambda: "on" in process.log_path(home, "sleeper").read_text(), what="its word")
    began = time.monotonic()
    assert process.stop(home, "sleeper", grace=0.5)
    assert is_gone(state.pid)
    assert 0.5 <= time.monotonic() - began < process.GRACE
    process.end_lease(home, "sleeper", lease)


def test_ctrl_c_reaches_the_command_and_not_its_servers(home: Path) -> None:
    lease = process.take_lease(home, "sleeper")
    state = process.start(home, launch(home), detached=False)
    assert os.getsid(state.pid) != os.getsid(0)
    process.end_lease(home, "sleeper", lease)


def test_missing_program_is_an_error_that_names_it(home: Path) -> None:
    lease = process.take_lease(home, "sleeper")
    with pytest.raises(ServiceError, match="/nowhere/java"):
        process.start(home, launch(home, ("/nowhere/java",)), detached=False)
    process.end_lease(home, "sleeper", lease)


@pytest.mark.parametrize("content", ["", "{", "[]", '{"name": "sleeper"}'])
def test_broken_state_file_counts_as_none(home: Path, content: str) -> None:
    path = process.state_path(home, "sleeper")
    path.parent.mkdir(parents=True)
    path.write_text(content)
    assert process.read_state(home, "sleeper") is None
    assert not process.stop(home, "sleeper")


def test_server_that_died_is_noticed(home: Path) -> None:
    lease = process.take_lease(home, "sleeper")
    state = process.start(home, launch(home), detached=True)
    os.kill(state.pid, signal.SIGKILL)
    wait_until(lambda: process.find_process(state) is None, what="its end")
    assert process.read_state(home, "sleeper") == state
    assert process.find_process(replace(state, pid=os.getpid())) is None
    process.end_lease(home, "sleeper", lease)
