"""Find or start a server of a home, share it between commands, and stop it with the last command that uses it.

A home runs each server at most once. It ends with the last command that uses it, unless `headrace up` started it: then it runs
until `headrace down`. After a crash it restarts on the same data, and on the same port if that is free.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from headrace.errors import ServiceError, UnavailableError
from headrace.file_locks import locked, unlock
from headrace.servers import ports, process
from headrace.settings import Settings

START_TIMEOUT = 90.0
ATTEMPTS = 3
_PAUSE = 0.3

Report = Callable[[str], None]
S = TypeVar("S", bound="RunningService")


@dataclass(frozen=True)
class RunningService:
    """A running server. A `detached` one runs until `headrace down`; a `secure` one requires a password."""

    port: int
    pid: int
    log: Path
    since: str
    detached: bool
    secure: bool = False

    @classmethod
    def of(cls: type[S], state: process.ServiceState) -> S:
        return cls(state.port, state.pid, Path(state.log), state.since, state.owner is None, state.secure)


@dataclass(frozen=True)
class Embedded:
    """A server that Headrace can start: its name in files and its title in messages.

    `launch` starts it and returns its state once it answers; `answers` checks a server that is already running. A `securable`
    server requires a password if `services.secure` is set, an `always_secure` one in any case.
    """

    name: str
    title: str
    launch: Callable[[Settings, bool, Report], process.ServiceState]
    answers: Callable[[Settings, process.ServiceState], bool]
    securable: bool = False
    always_secure: bool = False


@contextmanager
def use(server: Embedded, settings: Settings, *, report: Report) -> Iterator[process.ServiceState]:
    """Yield the state of a server that answers; stop it at the end of the block if no other command uses it."""
    lease = process.take_lease(settings.home, server.name)
    try:
        yield _find_or_start(server, settings, detached=False, report=report)
    finally:
        with _start_lock(server, settings, report=report):
            if process.end_lease(settings.home, server.name, lease):
                report(f"{server.title} is stopped")


def running(server: Embedded, settings: Settings) -> process.ServiceState | None:
    """Return the home's server if it runs and has been ready, else None."""
    state = process.read_state(settings.home, server.name)
    return None if state is None or not state.ready or process.find_process(state) is None else state


def start(server: Embedded, settings: Settings, *, detached: bool, report: Report) -> process.ServiceState:
    """Return the home's server; start it if it does not run.

    Detached it runs until `stop`, otherwise until the last process that uses it ends.
    """
    lease = process.take_lease(settings.home, server.name)
    try:
        state = _find_or_start(server, settings, detached=detached, report=report)
    except BaseException:
        unlock(lease)
        raise
    if detached:
        unlock(lease)
    return state


def stop(server: Embedded, settings: Settings, *, report: Report) -> bool:
    """Stop a server, even if other commands use it; return whether it was running."""
    if not (settings.home / "services").is_dir():
        return False
    with _start_lock(server, settings, report=report):
        return process.stop(settings.home, server.name)


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


def retry_start(
    start: Callable[[int], process.ServiceState], *, port: int, choose: Callable[[], int], retryable: Sequence[str]
) -> process.ServiceState:
    """Call `start` with a port and return its state; on an error with one of the `retryable` reasons, retry on a new port."""
    for _ in range(ATTEMPTS - 1):
        try:
            return start(port)
        except ServiceError as error:
            if not any(reason in error.what for reason in retryable):
                raise
            time.sleep(_PAUSE)
            port = choose()
    return start(port)


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
            raise explain(read_log(state))
        if answers():
            return
        time.sleep(pause)
    raise no_answer(title, state)


def last_port(folder: Path) -> int | None:
    """Return the port that `save_port` wrote in the last run, or None if this is the first."""
    try:
        return int((folder / "port").read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None


def save_port(folder: Path, port: int) -> None:
    """Write the port of a server to its folder, as the preferred port of the next start."""
    (folder / "port").write_text(f"{port}\n", encoding="ascii")


def read_log(state: process.ServiceState) -> str:
    return Path(state.log).read_text(encoding="utf-8", errors="replace")


def no_answer(title: str, state: process.ServiceState) -> ServiceError:
    """Return the error for a running server that has not answered in time."""
    return ServiceError(
        f"{title} did not answer within {START_TIMEOUT:.0f} seconds",
        where=state.log,
        next_step=f"If this machine is very busy, run the command again. Otherwise read the log: headrace logs {state.name}",
    )


def _find_or_start(server: Embedded, settings: Settings, *, detached: bool, report: Report) -> process.ServiceState:
    """Return the state of the running server, or start it. The caller's lease keeps it running."""
    with _start_lock(server, settings, report=report):
        state = process.read_state(settings.home, server.name)
        if state is not None and process.find_process(state) is not None:
            if not state.ready:  # the command that started it was killed
                process.stop(settings.home, server.name)
            elif server.securable and settings.services_secure and not state.secure:
                raise ServiceError(
                    f"{server.title} runs without a password (pid {state.pid}), and services.secure requires one",
                    where=f"services.secure, from {settings.origins.get('services.secure', 'the profile')}",
                    next_step="Run: headrace down   then the command again.",
                )
            elif server.always_secure and not state.secure:
                raise ServiceError(
                    f"{server.title} runs without a password (pid {state.pid}): an earlier version of Headrace started it",
                    where=state.log,
                    next_step="Run: headrace down   then the command again.",
                )
            elif server.answers(settings, state):
                if detached and state.owner is not None:
                    state = process.detach(settings.home, state)
                report(f"{server.title} is already running on {ports.HOST}:{state.port}")
                return state
            elif process.find_process(state) is not None:  # otherwise it ended during the check
                raise UnavailableError(
                    f"{server.title} runs (pid {state.pid}) but does not answer on {ports.HOST}:{state.port}",
                    where=state.log,
                    next_step="Run: headrace down   then the command again.",
                )
        return server.launch(settings, detached, report)


@contextmanager
def _start_lock(server: Embedded, settings: Settings, *, report: Report) -> Iterator[None]:
    path = process.start_lock(settings.home, server.name)
    try:
        waiting = f"Another command is starting {server.title}"
        with locked(path, timeout=START_TIMEOUT * 2, waiting=lambda: report(waiting)):
            yield
    except TimeoutError:
        raise ServiceError(
            f"another command has been starting or stopping {server.title} for more than {START_TIMEOUT * 2:.0f} seconds",
            where=str(path),
            next_step="Run: headrace status   and end the command that hangs.",
        ) from None
