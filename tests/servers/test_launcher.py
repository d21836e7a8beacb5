"""A launcher starts a server on a port, retries on another one, and explains a failed start."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headrace.errors import ServiceError
from headrace.servers import embedded, process
from headrace.servers.embedded import Embedded, Report
from headrace.servers.failed_start import Sign, no_memory, port_taken, signs_in_stack
from headrace.servers.launcher import Launcher, read_saved_port
from headrace.servers.ports import find_free_port
from headrace.settings import Settings, load_settings

NAME = "sleeper"
SLEEP = "import time; time.sleep(600)"
FAIL = "import sys; sys.exit({!r})"


class Sleeper:
    """A server whose starts run the given programs, one after another. It is ready as soon as it sleeps."""

    def __init__(self, home: Path, *programs: str, signs: tuple[Sign, ...] = (port_taken("SLEEPER_PORT"),)) -> None:
        self.settings: Settings = load_settings(flags={}, environ={"HEADRACE_HOME": str(home)}, folder=home)
        self.home = home
        self.ports: list[int] = []
        self.reports: list[str] = []
        self._programs = iter(programs)
        launcher = Launcher(
            NAME,
            "The sleeper",
            port=lambda settings: self.port,
            prepare=self._prepare,
            is_ready=lambda settings, state: process.find_process(state) is not None and self._program == SLEEP,
            signs=lambda home: signs,
            pause=0.01,
        )
        self.port = find_free_port()
        self.server = Embedded(NAME, "The sleeper", launch=launcher, answers=lambda settings, state: True)

    def _prepare(self, settings: Settings, report: Report) -> Callable[[int], process.Launch]:
        (self.home / NAME).mkdir(parents=True, exist_ok=True)

        def launch(port: int) -> process.Launch:
            self.ports.append(port)
            self._program = next(self._programs)
            command = (sys.executable, "-c", self._program)
            return process.Launch(name=NAME, command=command, folder=self.home / NAME, environ={}, port=port)

        return launch

    def start(self) -> process.ServiceState:
        return embedded.start(self.server, self.settings, detached=True, report=self.reports.append)


@pytest.fixture
def sleepers(tmp_path: Path) -> Iterator[Callable[..., Sleeper]]:
    started: list[Sleeper] = []

    def make(*programs: str, **options: tuple[Sign, ...]) -> Sleeper:
        started.append(Sleeper(tmp_path, *programs, **options))
        return started[-1]

    yield make
    for sleeper in started:
        embedded.stop(sleeper.server, sleeper.settings, report=lambda line: None)


def test_launcher_reports_and_saves_its_port(sleepers: Callable[..., Sleeper], tmp_path: Path) -> None:
    sleeper = sleepers(SLEEP)
    state = sleeper.start()
    assert state.ready
    assert state.port == sleeper.port == read_saved_port(tmp_path / NAME)
    assert sleeper.reports[0] == "The sleeper is starting"
    assert sleeper.reports[1].startswith(f"The sleeper is ready on 127.0.0.1:{state.port} (")


def test_running_server_is_reported_once_by_a_process(
    sleepers: Callable[..., Sleeper], monkeypatch: pytest.MonkeyPatch
) -> None:
    sleeper = sleepers(SLEEP)
    state = sleeper.start()
    assert sleeper.start() == state
    assert len(sleeper.reports) == 2, "is starting, is ready"
    monkeypatch.setattr(embedded, "_REPORTED", set())  # as in another process
    assert [sleeper.start(), sleeper.start()] == [state, state]
    assert sleeper.reports[2:] == [f"The sleeper is already running on 127.0.0.1:{state.port}"]


def test_launcher_retries_a_taken_port(sleepers: Callable[..., Sleeper]) -> None:
    sleeper = sleepers(FAIL.format("bind: Address already in use"), SLEEP)
    assert sleeper.start().ready
    assert len(sleeper.ports) == 2


def test_launcher_retries_a_taken_port_three_times(sleepers: Callable[..., Sleeper]) -> None:
    sleeper = sleepers(*[FAIL.format("bind: Address already in use")] * 3)
    with pytest.raises(ServiceError) as failed:
        sleeper.start()
    assert failed.value.what == "The sleeper did not start: its port is taken (bind: Address already in use)"
    assert failed.value.next_step == "Run the command again, or choose a port: SLEEPER_PORT=<number>"
    assert len(sleeper.ports) == 3


@pytest.mark.parametrize(
    ("line", "what", "step"),
    [
        ("OutOfMemoryError", "not enough memory (OutOfMemoryError)", "End other programs: it takes up to 400 MB."),
        ("a riddle", "it ended during its start (a riddle)", "Read the log: headrace logs sleeper"),
    ],
)
def test_launcher_explains_other_failures_at_once(
    sleepers: Callable[..., Sleeper], tmp_path: Path, line: str, what: str, step: str
) -> None:
    sleeper = sleepers(FAIL.format(line), signs=(no_memory("it takes up to 400 MB"),))
    with pytest.raises(ServiceError) as failed:
        sleeper.start()
    assert failed.value.what == f"The sleeper did not start: {what}"
    assert (failed.value.where, failed.value.next_step) == (str(process.log_path(tmp_path, NAME)), step)
    assert len(sleeper.ports) == 1
    assert process.read_state(tmp_path, NAME) is None


def test_failures_in_the_stack_name_its_profile(sleepers: Callable[..., Sleeper]) -> None:
    sleeper = sleepers(FAIL.format("a riddle"), signs=signs_in_stack(NAME, memory_mb=400))
    with pytest.raises(ServiceError) as failed:
        sleeper.start()
    assert failed.value.next_step == "Read the log: headrace --profile stack logs sleeper"
