"""A schema registry for a command: the user's own, or Apicurio, which Headrace starts, shares and stops (see embedded.py).

`<home>/registry/` holds its database (H2, one file; a schema is on disk before its registration is acknowledged), `port`, the
preferred port of the next start, and `password`. The registry listens on 127.0.0.1 only, behind a gate (gate.py) that checks
the origin of requests.

The registry always requires the password. Unless `services.secure` is set, the gate adds it to requests without any.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from headrace.errors import UnavailableError
from headrace.http.client import is_fine, without_secrets
from headrace.secret_files import keep_secret, write_privately
from headrace.servers import embedded, ports, process
from headrace.servers.archives import unpack
from headrace.servers.embedded import Embedded, Report, RunningService
from headrace.servers.failed_start import no_memory, port_taken
from headrace.servers.jars import cache_folder, resolve_jars
from headrace.servers.java import SERVER_OPTIONS, choose_java, clear_temporary
from headrace.servers.launcher import Launcher
from headrace.settings import Settings

NAME = "registry"
COMPATIBLE = "/apis/ccompat/v7"
"""The path of Apicurio's Confluent-compatible API."""
NATIVE = "/apis/registry/v2"
"""The path of Apicurio's own API, which its converter uses."""
USER = "headrace"
ANSWER_TIMEOUT = 10.0
_JAVA = (21, 25)
_LOGIN = """\
quarkus.http.auth.basic=true
quarkus.http.auth.permission.all.paths=/*
quarkus.http.auth.permission.all.policy=authenticated
quarkus.security.users.embedded.enabled=true
quarkus.security.users.embedded.plain-text=true
quarkus.security.users.embedded.users.{user}={password}
quarkus.security.users.embedded.roles.{user}=sr-admin
"""
"""The content of `config/application.properties`, which the registry reads from its working folder."""
_DATABASE = "jdbc:h2:file:./data/registry;WRITE_DELAY=0"


@dataclass(frozen=True)
class RegistryService(RunningService):
    """A running registry."""


@contextmanager
def registry(settings: Settings, *, report: Report) -> Iterator[str]:
    """Yield the address of a registry that answers; stop it at the end if nothing else uses it.

    The user's own registry keeps running.
    """
    if settings.registry_url:
        _check_own(settings.registry_url, origin=settings.origins.get("registry.url", ""))
        yield settings.registry_url
        return
    with embedded.use(SERVER, settings, report=report) as state:
        yield _url(settings, RegistryService.of(state))


def find_registry(settings: Settings) -> str | None:
    """Return the address of the user's own registry, else of the running one, with its login if it requires one.

    Starts nothing.
    """
    service = None if settings.registry_url else running_registry(settings)
    return _url(settings, service) if service else settings.registry_url


class ExpectedRegistry:
    """Distinguishes an outage of the registry from having no registry.

    A registry is expected if the user has one, if one runs or was started in this home, or if this object has found one before.
    During its outage, `find` still returns its address, so requests fail until it answers again.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._last = ""

    def find(self) -> str:
        """Return the registry's address, empty if none is expected. It has a password only while the registry runs."""
        address = find_registry(self._settings)
        state = process.read_state(self._settings.home, NAME)
        if address or state:
            self._last = f"http://{ports.HOST}:{state.port}{COMPATIBLE}" if state else without_secrets(address or "")
        return address or self._last


def running_registry(settings: Settings) -> RegistryService | None:
    """Return this home's registry if it runs and has been ready, else None."""
    state = embedded.running(SERVER, settings)
    return None if state is None else RegistryService.of(state)


def start_registry(settings: Settings, *, detached: bool, report: Report) -> RegistryService:
    """Return this home's registry; start it if it does not run.

    Detached it runs until `stop_registry`, otherwise until the last process that uses it ends.
    """
    return RegistryService.of(embedded.start(SERVER, settings, detached=detached, report=report))


def stop_registry(settings: Settings, *, report: Report = lambda line: None) -> bool:
    """Stop the registry, even if other commands use it; return whether it was running."""
    return embedded.stop(SERVER, settings, report=report)


def _prepare(settings: Settings, report: Report) -> Callable[[int], process.Launch]:
    folder = settings.home / NAME
    clear_temporary(folder)
    (archive,) = resolve_jars(NAME, report=report)
    program = unpack(archive, cache=cache_folder(os.environ)) / "quarkus-run.jar"
    java = choose_java(os.environ, supported=_JAVA)
    credentials = folder / "credentials"
    password = _password(settings)
    write_privately(credentials, f"{USER}:{password}\n")
    (folder / "config").mkdir(exist_ok=True)
    write_privately(folder / "config" / "application.properties", _LOGIN.format(user=USER, password=password))

    def launch(port: int) -> process.Launch:
        private_port = ports.find_free_port()
        return process.Launch(
            name=NAME,
            command=_command(java.program, program, port=private_port),
            folder=folder,
            environ=os.environ,
            port=port,
            gate=process.Gate(private_port, None if settings.services_secure else credentials),
            secure=settings.services_secure,
        )

    return launch


def _command(java: Path, program: Path, *, port: int) -> tuple[str, ...]:
    options = {
        "quarkus.http.host": ports.HOST,
        "quarkus.http.port": str(port),
        "quarkus.management.host": ports.HOST,
        "quarkus.management.port": "0",
        "apicurio.storage.sql.kind": "h2",
        "apicurio.datasource.url": _DATABASE,
    }
    defined = (f"-D{name}={value}" for name, value in options.items())
    return (str(java), "-Xms32m", "-Xmx256m", *SERVER_OPTIONS, *defined, "-jar", str(program))


def _is_ready(settings: Settings, state: process.ServiceState, *, timeout: float = 2.0) -> bool:
    return is_fine(f"{_url(settings, RegistryService.of(state))}/subjects", timeout=timeout)


_SIGNS = (
    port_taken("HEADRACE_REGISTRY_PORT", also="already bound"),
    no_memory("the registry takes up to 500 MB"),
)
_LAUNCHER = Launcher(
    NAME,
    "The registry",
    port=lambda settings: settings.registry_port,
    prepare=_prepare,
    is_ready=_is_ready,
    signs=lambda home: _SIGNS,
)
SERVER = Embedded(NAME, _LAUNCHER.title, launch=_LAUNCHER, answers=partial(_is_ready, timeout=ANSWER_TIMEOUT), securable=True)


def _check_own(url: str, *, origin: str) -> None:
    if not is_fine(f"{url.rstrip('/')}/subjects", timeout=ANSWER_TIMEOUT):
        raise UnavailableError(
            f"no schema registry answers on {without_secrets(url)}",
            where=f"registry.url, from {origin}" if origin else "registry.url",
            next_step="Start it or fix the URL (Apicurio's ends in /apis/ccompat/v7). If HEADRACE_REGISTRY_URL is unset,"
            " Headrace starts its own registry.",
        )


def _url(settings: Settings, service: RegistryService) -> str:
    login = f"{USER}:{_password(settings)}@" if service.secure else ""
    return f"http://{login}{ports.HOST}:{service.port}{COMPATIBLE}"


def _password(settings: Settings) -> str:
    return keep_secret(settings.home / NAME / "password")
