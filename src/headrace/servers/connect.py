"""Kafka Connect for a command: the user's own, or a worker that Headrace starts, shares and stops (see embedded.py)."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from headrace.errors import ServiceError, UnavailableError
from headrace.http.client import is_fine, without_secrets
from headrace.kafka.client import java_client
from headrace.secret_files import keep_secret
from headrace.servers import connect_worker, embedded, ports, process
from headrace.servers.archives import ENDING, unpack
from headrace.servers.connect_worker import CONVERTER
from headrace.servers.embedded import Embedded, Report, RunningService
from headrace.servers.jars import cache_folder, resolve_jars
from headrace.servers.java import choose_java
from headrace.servers.kafka import find_servers, kafka, start_kafka
from headrace.servers.launcher import Launcher
from headrace.settings import Settings

NAME = "connect"
ANSWER_TIMEOUT = 15.0


@dataclass(frozen=True)
class ConnectService(RunningService):
    """A running worker."""


@contextmanager
def connect(settings: Settings, *, report: Report) -> Iterator[str]:
    """Yield the address of a Connect that answers; stop it at the end if nothing else uses it.

    The address of an embedded Connect includes user and password. Its Kafka is started before it and stopped after it. The
    user's own Connect keeps running.
    """
    if settings.connect_url:
        _check_own(settings.connect_url, origin=settings.origins.get("connect.url", ""))
        yield settings.connect_url.rstrip("/")
        return
    with kafka(settings, report=report), embedded.use(WORKER, settings, report=report) as state:
        yield _url(settings, state.port)


def find_connect(settings: Settings) -> str | None:
    """Return the address, with its login, of the user's own Connect, else of the running one. Starts nothing."""
    service = None if settings.connect_url else running_connect(settings)
    return _url(settings, service.port) if service else settings.connect_url and settings.connect_url.rstrip("/")


def running_connect(settings: Settings) -> ConnectService | None:
    """Return this home's Connect if it runs and has been ready, else None."""
    state = embedded.running(WORKER, settings)
    return None if state is None else ConnectService.of(state)


def start_connect(settings: Settings, *, detached: bool, report: Report) -> ConnectService:
    """Return this home's Connect; start it and its Kafka if they don't run.

    Detached it runs until `stop_connect`, otherwise until the last process that uses it ends.
    """
    if not settings.kafka_bootstrap_servers:
        start_kafka(settings, detached=detached, report=report)
    return ConnectService.of(embedded.start(WORKER, settings, detached=detached, report=report))


def stop_connect(settings: Settings, *, report: Report = lambda line: None) -> bool:
    """Stop Connect, even if other commands use it; return whether it was running."""
    return embedded.stop(WORKER, settings, report=report)


def knows_kafka(settings: Settings) -> bool:
    """Return whether this home's Connect was started with the current Kafka."""
    return connect_worker.read_servers(settings.home / NAME) == str(find_servers(settings) or "")


def secret_path(settings: Settings, name: str) -> Path:
    """Return the file with a connector's secret, for this home's Connect."""
    return settings.home / NAME / connect_worker.SECRETS / f"{name}.properties"


def _prepare(settings: Settings, report: Report) -> Callable[[int], process.Launch]:
    folder = settings.home / NAME
    servers = find_servers(settings)
    if servers is None:
        raise ServiceError("Connect requires Kafka, which is not running", where=NAME, next_step="Run: headrace up connect")
    cache = cache_folder(os.environ)
    resolved = resolve_jars(NAME, report=report)
    plugins = {path.name.partition("-")[0]: unpack(path, cache=cache).rglob("*.jar") for path in resolved if _is_archive(path)}
    connect_worker.prepare(folder, plugins={**plugins, CONVERTER: resolve_jars(CONVERTER, report=report)})
    connect_worker.write_login(folder, password=_password(settings))
    jars = tuple(path for path in resolved if not _is_archive(path))
    worker = connect_worker.Worker(folder, choose_java(os.environ).program, jars)
    own = settings.kafka_bootstrap_servers is not None

    def launch(port: int) -> process.Launch:
        client = java_client(servers)
        private_port = ports.find_free_port()
        connect_worker.write_properties(folder, servers=str(servers), port=private_port, own_kafka=own, client=client)
        return process.Launch(
            name=NAME,
            command=worker.command,
            folder=folder,
            environ={**os.environ, **client.environ},
            port=port,
            gate=process.Gate(private_port),
            secure=True,
        )

    return launch


def _is_archive(path: Path) -> bool:
    return path.name.endswith(ENDING)


def _is_ready(settings: Settings, state: process.ServiceState) -> bool:
    return is_fine(f"{_url(settings, state.port)}/health", timeout=2.0)


def _answers(settings: Settings, state: process.ServiceState) -> bool:
    return is_fine(f"{_url(settings, state.port)}/connectors", timeout=ANSWER_TIMEOUT)


_LAUNCHER = Launcher(
    NAME,
    "Connect",
    port=lambda settings: settings.connect_port,
    prepare=_prepare,
    is_ready=_is_ready,
    signs=lambda home: connect_worker.FAILURE_SIGNS,
)
WORKER = Embedded(NAME, _LAUNCHER.title, launch=_LAUNCHER, answers=_answers, always_secure=True)


def _check_own(url: str, *, origin: str) -> None:
    if not is_fine(f"{url.rstrip('/')}/connectors", timeout=ANSWER_TIMEOUT):
        raise UnavailableError(
            f"no Kafka Connect answers on {without_secrets(url)}",
            where=f"connect.url, from {origin}" if origin else "connect.url",
            next_step="Start it or fix the URL. If HEADRACE_CONNECT_URL is unset, Headrace starts its own Connect.",
        )


def _url(settings: Settings, port: int) -> str:
    return f"http://{connect_worker.USER}:{_password(settings)}@{ports.HOST}:{port}"


def _password(settings: Settings) -> str:
    return keep_secret(settings.home / NAME / "password")
