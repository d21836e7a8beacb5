"""Find or start a server of a home, share it between commands, and stop it with the last command that uses it.

A home runs each server at most once. It ends with the last command that uses it, unless `headrace up` started it: then it runs
until `headrace down`. After a crash it restarts on the same data, and on the same port if that is free.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from headrace.errors import ServiceError, UnavailableError
from headrace.file_locks import locked, unlock
from headrace.servers import ports, process
from headrace.settings import Settings

START_TIMEOUT = 90.0
_REPORTED: set[tuple[Path, str, int]] = set()
"""The servers that this process has reported as running, by home, name and process id: several of its parts may use one."""

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

    `launch` starts it (see launcher.py) and returns its state once it answers; `answers` checks a server that is already
    running. A `securable` server requires a password if `services.secure` is set, an `always_secure` one in any case.
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
                if (settings.home, server.name, state.pid) not in _REPORTED:
                    _REPORTED.add((settings.home, server.name, state.pid))
                    report(f"{server.title} is already running on {ports.HOST}:{state.port}")
                return state
            elif process.find_process(state) is not None:  # otherwise it ended during the check
                raise UnavailableError(
                    f"{server.title} runs (pid {state.pid}) but does not answer on {ports.HOST}:{state.port}",
                    where=state.log,
                    next_step="Run: headrace down   then the command again.",
                )
        state = server.launch(settings, detached, report)
        _REPORTED.add((settings.home, server.name, state.pid))
        return state


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
