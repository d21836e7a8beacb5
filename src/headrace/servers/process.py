"""Run servers as separate processes: started once, found by their state file, and stopped by their pid.

`<home>/services/<name>.json` identifies a server's process by its pid and start time, so a pid that the system reused for
another program is never touched. Output goes to `<home>/logs/<name>.log`; the previous run's log is kept as `<name>.log.1`.

A command that uses a server holds a lease on it. The server ends with its last lease, even if the command is killed (see
watchdog.py), unless it was started detached: then it runs until `stop`.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timezone
from pathlib import Path

import psutil

from headrace.errors import ServiceError
from headrace.file_locks import unlock, wait_for_lock
from headrace.servers import watchdog

GRACE = 15.0
_CLOCK = 2.0  # seconds that two readings of one process's start time may differ


@dataclass(frozen=True)
class Gate:
    """The HTTP gate of a server (see gate.py).

    `private_port` is the server's own port; `credentials` is the file with the `user:password` that the gate adds to requests
    without any.
    """

    private_port: int
    credentials: Path | None = None


@dataclass(frozen=True)
class Launch:
    """What to start: the command, its working folder and environment, and the port that it will listen on.

    `user` is the system user that it runs as, or None for the current one; `ending` is the signal that stops it. With a `gate`,
    the gate listens on the port and the server on the gate's private port. A `secure` server requires a password.
    """

    name: str
    command: tuple[str, ...]
    folder: Path
    environ: Mapping[str, str]
    port: int
    user: str | None = None
    ending: int = signal.SIGTERM
    gate: Gate | None = None
    secure: bool = False


@dataclass(frozen=True)
class ServiceState:
    """The content of a server's state file.

    `owner` is the pid of the command that started it, None if it is detached. `start_seconds` is how long it took to become
    ready.
    """

    name: str
    pid: int
    started: float
    port: int
    log: str
    since: str
    owner: int | None
    ready: bool = False
    ending: int = signal.SIGTERM
    start_seconds: float | None = None
    secure: bool = False


def state_path(home: Path, name: str) -> Path:
    return home / "services" / f"{name}.json"


def log_path(home: Path, name: str) -> Path:
    return home / "logs" / f"{name}.log"


def start_lock(home: Path, name: str) -> Path:
    """Return the lock file that keeps two commands from starting or stopping a server at the same time."""
    return home / "services" / f"{name}.lock"


def read_state(home: Path, name: str) -> ServiceState | None:
    """Return the state of a server, or None if its file is missing or damaged."""
    try:
        return ServiceState(**json.loads(state_path(home, name).read_bytes()))
    except (OSError, ValueError, TypeError):
        return None


def write_state(home: Path, state: ServiceState) -> None:
    """Replace the state file atomically."""
    path = state_path(home, state.name)
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, written = tempfile.mkstemp(dir=path.parent, prefix=f".{state.name}-")
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        json.dump(asdict(state), file, indent=2)
    os.replace(written, path)


def find_process(state: ServiceState) -> psutil.Process | None:
    """Return the running process of a state, or None if it ended or another process has its pid now."""
    try:
        process = psutil.Process(state.pid)
        if abs(process.create_time() - state.started) > _CLOCK or process.status() == psutil.STATUS_ZOMBIE:
            return None
    except psutil.NoSuchProcess:
        return None
    return process


def take_lease(home: Path, name: str) -> int:
    """Take a lease, before looking for the server; `end_lease` or the end of the command releases it."""
    file = wait_for_lock(_lease_path(home, name), shared=True, timeout=GRACE + 5)
    if file is None:
        raise ServiceError(
            f"{name} has not stopped within {GRACE:.0f} seconds",
            where=str(log_path(home, name)),
            next_step="Run: headrace status",
        )
    return file


def end_lease(home: Path, name: str, lease: int) -> bool:
    """Release a lease, and stop the server if it was the last one and the server is not detached; return whether it did."""
    state = read_state(home, name)
    try:
        fcntl.flock(lease, fcntl.LOCK_EX | fcntl.LOCK_NB)
        last = True
    except BlockingIOError:
        last = False
    try:
        if last and state is not None and state.owner is not None:
            return stop(home, name)
        return False
    finally:
        unlock(lease)


def start(home: Path, launch: Launch, *, detached: bool) -> ServiceState:
    """Start a process and return its state. The caller holds a lease and the start lock."""
    log = log_path(home, launch.name)
    log.parent.mkdir(parents=True, exist_ok=True)
    if log.exists():
        os.replace(log, log.with_name(f"{log.name}.1"))
    state_path(home, launch.name).parent.mkdir(parents=True, exist_ok=True)
    pid = _spawn(home, launch, log=log)
    try:
        started = psutil.Process(pid).create_time()
    except psutil.NoSuchProcess:
        started = 0.0  # it has already ended, which the caller notices when it looks for the process
    state = ServiceState(
        name=launch.name,
        pid=pid,
        started=started,
        port=launch.port,
        log=str(log),
        since=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        owner=None if detached else os.getpid(),
        ending=int(launch.ending),
        secure=launch.secure,
    )
    write_state(home, state)
    return state


def mark_ready(home: Path, state: ServiceState) -> ServiceState:
    ready = replace(state, ready=True, start_seconds=round(time.time() - state.started, 1))
    write_state(home, ready)
    return ready


def detach(home: Path, state: ServiceState) -> ServiceState:
    """Let a server run until `stop`, no matter which command started it; return its new state."""
    detached = replace(state, owner=None)
    write_state(home, detached)
    return detached


def stop(home: Path, name: str, *, grace: float = GRACE) -> bool:
    """Signal a process to end, and kill it after `grace` seconds; return whether there was one."""
    state = read_state(home, name)
    process = find_process(state) if state else None
    if state is not None and process is not None:
        try:
            process.send_signal(state.ending)
            if not _ended(state, within=grace):
                process.kill()
                _ended(state, within=5.0)
        except psutil.NoSuchProcess:
            pass
    state_path(home, name).unlink(missing_ok=True)
    return process is not None


def _ended(state: ServiceState, *, within: float) -> bool:
    deadline = time.monotonic() + within
    while find_process(state) is not None:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def _lease_path(home: Path, name: str) -> Path:
    return home / "services" / f"{name}.lease"


def _gate_arguments(launch: Launch) -> dict[str, object] | None:
    """Return the watchdog's argument for the gate; it has the path of the secret, because command lines are public."""
    if launch.gate is None:
        return None
    path = launch.gate.credentials
    return {"port": launch.port, "private_port": launch.gate.private_port, "credentials": str(path) if path else None}


def _spawn(home: Path, launch: Launch, *, log: Path) -> int:
    """Start the server through a watchdog and return its pid, which the watchdog reports through a pipe."""
    read_end, write_end = os.pipe()
    arguments = {
        "report": write_end,
        "lease": str(_lease_path(home, launch.name)),
        "state": str(state_path(home, launch.name)),
        "grace": GRACE,
        "user": launch.user,
        "ending": int(launch.ending),
        "command": launch.command,
        "gate": _gate_arguments(launch),
    }
    try:
        with open(log, "ab") as output:
            subprocess.run(
                [sys.executable, "-I", "-S", str(watchdog.__file__), json.dumps(arguments)],
                cwd=launch.folder,
                env=dict(launch.environ),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=(write_end,),
                start_new_session=True,  # Ctrl-C must reach only the command, which then stops its servers in order
                check=True,
            )
    finally:
        os.close(write_end)
        with open(read_end, encoding="utf-8") as pipe:
            answer = pipe.readline().strip()
    if not answer.isdigit():
        raise ServiceError(
            f"{launch.name} could not be started: {answer or 'its watchdog did not answer'}",
            where=launch.command[0],
            next_step=f"Read {log}, then run: headrace doctor",
        )
    return int(answer)
