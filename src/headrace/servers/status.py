"""List the servers of a home and read their logs, for `headrace status` and `headrace logs`."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import psutil

from headrace.errors import ServiceError, SettingsError
from headrace.logs import FAILURE_LOGS, HEADRACE, LANDING
from headrace.servers import process
from headrace.servers.ports import HOST
from headrace.servers.spark_cluster import WORKERS
from headrace.servers.stack import list_servers
from headrace.settings import STACK, Settings

GENERATOR = "generate-"
"""The prefix of background generators' names; the pipeline and stream follow."""
RECEIVER = "receive-"
"""The prefix of HTTP receivers' names; the pipeline follows."""
SEEDER = "seed-"
"""The prefix of seeders' names; the pipeline follows."""
SPARK = "spark"
_WORKERS = frozenset(worker.name for worker in WORKERS)
_BLOCK = 64 * 1024


@dataclass(frozen=True)
class ServiceStatus:
    """The status of one server.

    `died` means that it ended without being stopped. A `detached` one runs until `headrace down`. `start_seconds` is how long
    it took to become ready.
    """

    name: str
    state: Literal["running", "starting", "stopped", "died"]
    pid: int | None = None
    address: str | None = None
    log: Path | None = None
    memory_bytes: int | None = None
    since: str | None = None
    detached: bool = False
    start_seconds: float | None = None


def list_services(settings: Settings) -> tuple[ServiceStatus, ...]:
    """Return all servers that Headrace can start in this home, and the generators, receivers and seeders that were started."""
    folder = settings.home / "services"
    servers = sorted(path.stem for prefix in (RECEIVER, SEEDER) for path in folder.glob(f"{prefix}*.json"))
    return tuple(_read_status(settings.home, name) for name in (*_names(settings), *servers, *list_background(settings)))


def list_background(settings: Settings) -> tuple[str, ...]:
    """Return the names of the generators that were started in the background and not stopped."""
    return tuple(sorted(path.stem for path in (settings.home / "services").glob(f"{GENERATOR}*.json")))


def read_log(settings: Settings, name: str, lines: int) -> tuple[str, ...]:
    """Return the last lines of a log, oldest first."""
    others = (path.stem for prefix in (GENERATOR, RECEIVER, SEEDER) for path in settings.logs.glob(f"{prefix}*.log"))
    known = (*_names(settings), SPARK, HEADRACE, *FAILURE_LOGS, *sorted(others))
    if name not in known:
        raise SettingsError(f'log not found: "{name}"', next_step=f"Logs are: {', '.join(known)}.")
    path = process.log_path(settings.home, name)
    if not path.exists():
        up = "headrace up --profile stack" if settings.profile == STACK else f"headrace up {name}"
        if name in FAILURE_LOGS:
            what = "no stream" if name == LANDING else f"no {name}"
            raise ServiceError(f"{what} has failed yet", where=str(path), next_step="The log is written at the first failure.")
        start = "a command that lands or builds, such as headrace run lineage" if name in (SPARK, HEADRACE) else up
        raise ServiceError(
            f"{name} has no log: it was never started here", where=str(path), next_step=f"It is written by {start}."
        )
    return tuple(_read_end(path, lines=lines))


def _names(settings: Settings) -> tuple[str, ...]:
    return tuple(server.name for server in list_servers(settings))


def _read_status(home: Path, name: str) -> ServiceStatus:
    log = process.log_path(home, name)
    state = process.read_state(home, name)
    if state is None:
        return ServiceStatus(name, "stopped", log=log if log.exists() else None)
    server = process.find_process(state)
    if server is None:
        return ServiceStatus(name, "died", pid=state.pid, log=Path(state.log), since=state.since)
    return ServiceStatus(
        name,
        "running" if state.ready else "starting",
        pid=state.pid,
        address=f"{HOST}:{state.port}" if state.port else None,
        log=Path(state.log),
        memory_bytes=_measure_memory(server, name=name),
        since=state.since,
        detached=state.owner is None,
        start_seconds=state.start_seconds,
    )


def _measure_memory(server: psutil.Process, *, name: str) -> int | None:
    """Return the memory of a server's process; a Spark worker's includes its executors."""
    try:
        started = server.children(recursive=True) if name in _WORKERS else []
        return sum(int(running.memory_info().rss) for running in (server, *started))
    except psutil.Error:
        return None


def _read_end(path: Path, *, lines: int) -> list[str]:
    """Return the last lines of a file; read it backwards in blocks, because logs may be large."""
    if lines <= 0:
        return []
    with open(path, "rb") as file:
        at = file.seek(0, os.SEEK_END)
        end = b""
        while at > 0 and end.count(b"\n") <= lines:
            step = min(_BLOCK, at)
            at = file.seek(at - step)
            end = file.read(step) + end
    return end.decode("utf-8", errors="replace").splitlines()[-lines:]
