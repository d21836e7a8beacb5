"""Trino for a command: downloaded on demand, then started, shared and stopped like the other servers (embedded.py).

`<home>/trino/` holds its settings, rewritten at every start, and `port`, the preferred port of the next start. It listens on
127.0.0.1 only, and has one read-only catalog, `headrace`.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from headrace.errors import ServiceError, UnavailableError
from headrace.http.client import ask
from headrace.servers import embedded, ports, process
from headrace.servers.archives import unpack
from headrace.servers.embedded import Embedded, Report, RunningService
from headrace.servers.failed_start import no_memory, port_taken
from headrace.servers.jars import GROUPS, cache_folder, cached_jars, resolve_jars
from headrace.servers.java import SERVER_OPTIONS, clear_temporary, read_version
from headrace.servers.launcher import Launcher
from headrace.servers.newer_java import cached_java, fetch_java
from headrace.servers.trino_catalog import CATALOG, trino_catalog
from headrace.settings import Settings

NAME = "trino"
ANSWER_TIMEOUT = 10.0
_JAVA = 25
_JAVA_LOCK = GROUPS / NAME / "java.txt"
_HEAP = "1g"
_OPTIONS = (
    "-Djdk.attach.allowAttachSelf=true",
    "--enable-native-access=ALL-UNNAMED",
    "--sun-misc-unsafe-memory-access=allow",
)


@dataclass(frozen=True)
class TrinoService(RunningService):
    """A running Trino."""

    @property
    def url(self) -> str:
        return _url(self.port)


@contextmanager
def trino(settings: Settings, *, report: Report) -> Iterator[str]:
    """Yield the address of a Trino that answers; stop it at the end if nothing else uses it.

    Downloads nothing: raises a ServiceError if Trino was not downloaded before.
    """
    running = running_trino(settings)
    if running is None and not is_fetched():
        raise ServiceError(
            "Trino is not downloaded yet",
            where="--engine trino",
            next_step="Run: headrace up trino   It downloads Trino once (580 MB), which runs until headrace down.",
        )
    with embedded.use(SERVER, settings, report=report if running is None else lambda line: None) as state:
        yield _url(state.port)


def is_fetched() -> bool:
    """Return whether Trino and its Java are in the cache."""
    return bool(cached_jars(NAME)) and (_own_java() or cached_java(_JAVA_LOCK, cache=cache_folder(os.environ)) is not None)


def running_trino(settings: Settings) -> TrinoService | None:
    """Return this home's Trino if it runs and has been ready, else None."""
    state = embedded.running(SERVER, settings)
    return None if state is None else TrinoService.of(state)


def start_trino(settings: Settings, *, detached: bool, report: Report) -> TrinoService:
    """Return this home's Trino; start it if it does not run.

    Detached it runs until `stop_trino`, otherwise until the last process that uses it ends.
    """
    return TrinoService.of(embedded.start(SERVER, settings, detached=detached, report=report))


def stop_trino(settings: Settings, *, report: Report = lambda line: None) -> bool:
    """Stop Trino, even if other commands use it; return whether it was running."""
    return embedded.stop(SERVER, settings, report=report)


def _prepare(settings: Settings, report: Report) -> Callable[[int], process.Launch]:
    folder = settings.home / NAME
    catalog = trino_catalog(settings)
    cache = cache_folder(os.environ)
    driver, core, connector = resolve_jars(NAME, report=report)
    java = fetch_java(os.environ, version=_JAVA, lock=_JAVA_LOCK, cache=cache, report=report)
    server = unpack(core, cache=cache)
    clear_temporary(folder)
    for outdated in ("etc", "plugin"):
        shutil.rmtree(folder / outdated, ignore_errors=True)
    _link_plugin(folder / "plugin" / "iceberg", [*unpack(connector, cache=cache).glob("*/*.jar"), driver])
    _write(folder / "etc" / "catalog" / f"{CATALOG}.properties", catalog.properties)

    def launch(port: int) -> process.Launch:
        _write(folder / "etc" / "config.properties", _server_settings(port))
        classes = ":".join(str(path) for path in sorted(server.glob("*/lib/*.jar")))
        options = ("-Xms128m", f"-Xmx{_HEAP}", *SERVER_OPTIONS, *_OPTIONS, "-Dconfig=etc/config.properties")
        command = (str(java.program), *options, "-cp", classes, "io.trino.server.TrinoServer")
        environ = {**os.environ, **catalog.environ}
        return process.Launch(name=NAME, command=command, folder=folder, environ=environ, port=port)

    return launch


def _server_settings(port: int) -> dict[str, str]:
    return {
        "node.environment": "headrace",
        "node.id": "headrace",
        "node.internal-address": ports.HOST,
        "node.bind-ip": ports.HOST,
        "coordinator": "true",
        "node-scheduler.include-coordinator": "true",
        "http-server.http.port": str(port),
        "discovery.uri": _url(port),
        "plugin.dir": "plugin",
        "catalog.config-dir": "etc/catalog",
        "query.max-memory-per-node": "512MB",
        "memory.heap-headroom-per-node": "256MB",
    }


def _link_plugin(folder: Path, jars: list[Path]) -> None:
    """Create the folder of Trino's only plugin, with links to the jars of the connector and the catalog's driver."""
    folder.mkdir(parents=True)
    for jar in jars:
        (folder / jar.name).symlink_to(jar)


def _write(path: Path, values: Mapping[str, str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{name}={value}\n" for name, value in values.items()), encoding="utf-8")


def _is_ready(settings: Settings, state: process.ServiceState, *, timeout: float = 2.0) -> bool:
    """Return whether Trino accepts queries; its port answers before that."""
    try:
        answer = ask(f"{_url(state.port)}/v1/info", timeout=timeout)
    except UnavailableError:
        return False
    return answer.is_fine and answer.body.get("starting") is False


_SIGNS = (port_taken("HEADRACE_TRINO_PORT"), no_memory("Trino takes more than 1 GB"))
_LAUNCHER = Launcher(
    NAME,
    "Trino",
    port=lambda settings: settings.trino_port,
    prepare=_prepare,
    is_ready=_is_ready,
    signs=lambda home: _SIGNS,
    pause=0.2,
)
SERVER = Embedded(NAME, _LAUNCHER.title, launch=_LAUNCHER, answers=partial(_is_ready, timeout=ANSWER_TIMEOUT))


def _own_java() -> bool:
    """Return whether JAVA_HOME has the Java version of Trino."""
    home = os.environ.get("JAVA_HOME")
    return home is not None and read_version(Path(home)) == _JAVA


def _url(port: int) -> str:
    return f"http://{ports.HOST}:{port}"
