"""What `headrace status` and `headrace logs` show: the servers of a home, and the ends of their logs."""

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
"""How the names of generators in the background begin; their pipeline and stream follow."""
RECEIVER = "receive-"
"""How the names of servers that take events over HTTP begin; their pipeline follows."""
SEEDER = "seed-"
"""How the names of servers that fill a source database begin; their pipeline follows."""
SPARK = "spark"
_WORKERS = frozenset(worker.name for worker in WORKERS)
_BLOCK = 64 * 1024


@dataclass(frozen=True)
class ServiceStatus:
    """One server. `died`: it ended without being stopped. `detached`: it lives until `headrace down`. `start_seconds`: how
    long it took to get ready."""

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
    """Return every server that Headrace can start in this home, also those that don't run, and what was started of
    generators, receivers and seeders."""
    folder = settings.home / "services"
    servers = sorted(path.stem for prefix in (RECEIVER, SEEDER) for path in folder.glob(f"{prefix}*.json"))
    return tuple(_look_at(settings.home, name) for name in (*_names(settings), *servers, *list_background(settings)))


def list_background(settings: Settings) -> tuple[str, ...]:
    """Return the names of the generators that were started in the background and not stopped."""
    return tuple(sorted(path.stem for path in (settings.home / "services").glob(f"{GENERATOR}*.json")))


def read_log(settings: Settings, name: str, lines: int) -> tuple[str, ...]:
    """Return the last lines of a log, the oldest first."""
    others = (path.stem for prefix in (GENERATOR, RECEIVER, SEEDER) for path in settings.logs.glob(f"{prefix}*.log"))
    known = (*_names(settings), SPARK, HEADRACE, *FAILURE_LOGS, *sorted(others))
    if name not in known:
        raise SettingsError(f'there is no log of "{name}"', next_step=f"Logs are: {', '.join(known)}.")
    path = process.log_path(settings.home, name)
    if not path.exists():
        up = "headrace up --profile stack" if settings.profile == STACK else f"headrace up {name}"
        if name in FAILURE_LOGS:
            what = "no stream" if name == LANDING else f"no {name}"
            raise ServiceError(f"{what} has failed here", where=str(path), next_step="The log is written when one does.")
        start = "a command that lands or builds, such as headrace run lineage" if name in (SPARK, HEADRACE) else up
        raise ServiceError(
            f"{name} has no log: it was never started here", where=str(path), next_step=f"It is written by {start}."
        )
    return tuple(_read_end(path, lines=lines))


def _names(settings: Settings) -> tuple[str, ...]:
    return tuple(server.name for server in list_servers(settings))


def _look_at(home: Path, name: str) -> ServiceStatus:
    log = process.log_path(home, name)
    state = process.read_state(home, name)
    if state is None:
        return ServiceStatus(name, "stopped", log=log if log.exists() else None)
    found = process.find_process(state)
    if found is None:
        return ServiceStatus(name, "died", pid=state.pid, log=Path(state.log), since=state.since)
    return ServiceStatus(
        name,
        "running" if state.ready else "starting",
        pid=state.pid,
        address=f"{HOST}:{state.port}" if state.port else None,
        log=Path(state.log),
        memory_bytes=_measure_memory(found, name=name),
        since=state.since,
        detached=state.owner is None,
        start_seconds=state.start_seconds,
    )


def _measure_memory(found: psutil.Process, *, name: str) -> int | None:
    """Return the memory of a server's process; a Spark worker's is that of its executors too."""
    try:
        started = found.children(recursive=True) if name in _WORKERS else []
        return sum(int(each.memory_info().rss) for each in (found, *started))
    except psutil.Error:
        return None


def _read_end(path: Path, *, lines: int) -> list[str]:
    """Reads backwards block by block: a log may be far longer than what is asked for."""
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
