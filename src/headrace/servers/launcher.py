"""Start a server: choose its port, prepare its files, wait until it answers, and explain a failed start."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from headrace.errors import ServiceError
from headrace.servers import ports, process
from headrace.servers.embedded import START_TIMEOUT, Report
from headrace.servers.failed_start import PORT_TAKEN, Sign, explain_failure
from headrace.settings import Settings

_ATTEMPTS = 3
_PAUSE_BETWEEN_ATTEMPTS = 0.3


def read_saved_port(folder: Path) -> int | None:
    """Return the port of the last run, which a start writes to the server's folder, or None if this is the first run."""
    try:
        return int((folder / "port").read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None


@dataclass(frozen=True)
class Launcher:
    """Starts one server of a home.

    `port` is the port of the settings, and `last_port` reads the port of the last run from the server's folder. `prepare`
    downloads missing files and returns a function that writes the server's files for a port and returns the launch. `is_ready`
    is called every `pause` seconds until it returns true. `signs` are the known causes of failed starts in a home; after the
    `retryable` ones the start is retried on another port.
    """

    name: str
    title: str
    port: Callable[[Settings], int]
    prepare: Callable[[Settings, Report], Callable[[int], process.Launch]]
    is_ready: Callable[[Settings, process.ServiceState], bool]
    signs: Callable[[Path], Sequence[Sign]]
    retryable: tuple[str, ...] = (PORT_TAKEN,)
    last_port: Callable[[Path], int | None] = read_saved_port
    pause: float = 0.1

    def __call__(self, settings: Settings, detached: bool, report: Report) -> process.ServiceState:
        """Start the server and return its state once it answers."""
        port = self._choose_port(settings, report)
        launch = self.prepare(settings, report)
        report(f"{self.title} is starting")
        began = time.monotonic()
        state = self._start(settings, launch, port, detached=detached, report=report)
        (settings.home / self.name / "port").write_text(f"{state.port}\n", encoding="ascii")
        report(f"{self.title} is ready on {ports.HOST}:{state.port} ({time.monotonic() - began:.1f} s)")
        return state

    def _start(
        self, settings: Settings, launch: Callable[[int], process.Launch], port: int, *, detached: bool, report: Report
    ) -> process.ServiceState:
        """Start the server on a port; after a retryable failure, choose another one."""
        for _ in range(_ATTEMPTS - 1):
            try:
                return launch_until_ready(settings, launch(port), detached=detached, wait=partial(self._wait, settings))
            except ServiceError as error:
                if not any(reason in error.what for reason in self.retryable):
                    raise
            time.sleep(_PAUSE_BETWEEN_ATTEMPTS)
            port = self._choose_port(settings, report)
        return launch_until_ready(settings, launch(port), detached=detached, wait=partial(self._wait, settings))

    def _choose_port(self, settings: Settings, report: Report) -> int:
        title = f"the {self.title.removeprefix('The ')}" if self.title.startswith("The ") else self.title
        last = self.last_port(settings.home / self.name)
        return choose_port(title, f"{self.name}.port", settings, usual=self.port(settings), last=last, report=report)

    def _wait(self, settings: Settings, state: process.ServiceState) -> None:
        wait_until_ready(
            state,
            title=self.title,
            answers=lambda: self.is_ready(settings, state),
            explain=lambda text: explain_failure(
                self.name, self.title, text, signs=self.signs(settings.home), log=Path(state.log)
            ),
            pause=self.pause,
        )


def launch_until_ready(
    settings: Settings,
    launch: process.Launch,
    *,
    detached: bool,
    wait: Callable[[process.ServiceState], None],
) -> process.ServiceState:
    """Start a process, wait for it and return its state; stop it if it does not become ready."""
    state = process.start(settings.home, launch, detached=detached)
    try:
        wait(state)
    except BaseException:
        process.stop(settings.home, launch.name, grace=2.0)
        raise
    return process.mark_ready(settings.home, state)


def choose_port(title: str, setting: str, settings: Settings, *, usual: int, last: int | None, report: Report) -> int:
    """Return the port of the last run, else the usual one, else a free one.

    Raises a ServiceError if the user has set the port and it is taken.
    """
    if settings.origins.get(setting, "default") != "default":
        if not ports.becomes_free(usual):
            raise ServiceError(
                f"port {usual} is taken{ports.describe_holder(usual)}",
                where=f"{setting}, from {settings.origins[setting]}",
                next_step="Stop that program, choose another port, or unset it to use a free one.",
            )
        return usual
    if last is not None and ports.becomes_free(last):
        return last
    if ports.is_free(usual):
        return usual
    port = ports.find_free_port()
    report(f"Port {usual} is taken{ports.describe_holder(usual)}: {title} uses {port}")
    return port


def wait_until_ready(
    state: process.ServiceState,
    *,
    title: str,
    answers: Callable[[], bool],
    explain: Callable[[str], ServiceError],
    pause: float = 0.05,
) -> None:
    """Return when a server answers. If it ends before that, raises the error that `explain` returns for its log."""
    deadline = time.monotonic() + START_TIMEOUT
    while time.monotonic() < deadline:
        if process.find_process(state) is None:
            raise explain(Path(state.log).read_text(encoding="utf-8", errors="replace"))
        if answers():
            return
        time.sleep(pause)
    raise ServiceError(
        f"{title} did not answer within {START_TIMEOUT:.0f} seconds",
        where=state.log,
        next_step=f"If this machine is very busy, run the command again. Otherwise read the log: headrace logs {state.name}",
    )
