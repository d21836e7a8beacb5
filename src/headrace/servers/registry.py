"""A schema registry for a command: the user's own, or Apicurio, which Headrace starts, shares and stops (see embedded.py).

`<home>/registry/` holds its database (H2, one file, every schema on disk before it is answered for), `port`, the one to
prefer next time, and `password`. It listens on 127.0.0.1 only, behind a gate (gate.py) that checks where requests come from.

The registry itself always asks for the password. Unless `services.secure` is set, the gate adds it to requests without any.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from headrace.errors import ServiceError, UnavailableError
from headrace.http.client import is_fine, without_secrets
from headrace.secret_files import keep_secret, write_privately
from headrace.servers import embedded, ports, process
from headrace.servers.archives import unpack
from headrace.servers.embedded import Embedded, Report, RunningService
from headrace.servers.jars import cache_folder, resolve_jars
from headrace.servers.java import SERVER_OPTIONS, choose_java
from headrace.servers.kafka_server import find_telling_line
from headrace.settings import Settings

NAME = "registry"
COMPATIBLE = "/apis/ccompat/v7"
"""Where Apicurio answers as Confluent's registry does."""
NATIVE = "/apis/registry/v2"
"""Where Apicurio answers as its own converter asks."""
USER = "headrace"
PORT_TAKEN = "its port is taken"
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
"""What `config/application.properties` says; the registry reads it from its working folder."""
_DATABASE = "jdbc:h2:file:./data/registry;WRITE_DELAY=0"


@dataclass(frozen=True)
class RegistryService(RunningService):
    """A running registry."""


@contextmanager
def registry(settings: Settings, *, report: Report) -> Iterator[str]:
    """Yield the address of a registry that answers, and stops at its end what it alone started and used."""
    if settings.registry_url:
        _check_own(settings.registry_url, origin=settings.origins.get("registry.url", ""))
        yield settings.registry_url
        return
    with embedded.use(SERVER, settings, report=report) as state:
        yield _url(settings, RegistryService.of(state))


def find_registry(settings: Settings) -> str | None:
    """Return the address of the user's own registry or of the one that runs, without starting any; with user and password if it
    asks for them."""
    service = None if settings.registry_url else running_registry(settings)
    return _url(settings, service) if service else settings.registry_url


class ExpectedRegistry:
    """Tells a registry that is down from none at all: asking it fails until it answers again.

    It is the user's own registry, the one that runs here, or one that was started here and died, is starting, or was found
    before by this object.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._last = ""

    def find(self) -> str:
        """Return the registry's address, or nothing where no registry is expected; a password only for one that runs."""
        found = find_registry(self._settings)
        state = process.read_state(self._settings.home, NAME)
        if found or state:
            self._last = f"http://{ports.HOST}:{state.port}{COMPATIBLE}" if state else without_secrets(found or "")
        return found or self._last


def running_registry(settings: Settings) -> RegistryService | None:
    """Return this home's registry if its process lives and it has been ready, else None."""
    state = embedded.running(SERVER, settings)
    return None if state is None else RegistryService.of(state)


def start_registry(settings: Settings, *, detached: bool, report: Report) -> RegistryService:
    """Return this home's registry, started if it does not run. Detached it lives until `stop_registry`; otherwise it ends
    with this process, or with the last one that uses it."""
    return RegistryService.of(embedded.start(SERVER, settings, detached=detached, report=report))


def stop_registry(settings: Settings, *, report: Report = lambda line: None) -> bool:
    """Return whether a registry was running; it is stopped, whoever uses it."""
    return embedded.stop(SERVER, settings, report=report)


def _start(settings: Settings, detached: bool, report: Report) -> process.ServiceState:
    folder = settings.home / NAME
    shutil.rmtree(folder / "tmp", ignore_errors=True)
    (folder / "tmp").mkdir(parents=True)

    def choose() -> int:
        last = embedded.last_port(folder)
        usual = settings.registry_port
        return embedded.choose_port("the registry", "registry.port", settings, usual=usual, last=last, report=report)

    port = choose()
    (archive,) = resolve_jars(NAME, report=report)
    program = unpack(archive, cache=cache_folder(os.environ)) / "quarkus-run.jar"
    java = choose_java(os.environ, supported=_JAVA)
    report("The registry is starting")
    began = time.monotonic()

    credentials = folder / "credentials"
    password = _password(settings)
    write_privately(credentials, f"{USER}:{password}\n")
    (folder / "config").mkdir(exist_ok=True)
    write_privately(folder / "config" / "application.properties", _LOGIN.format(user=USER, password=password))

    def start(port: int) -> process.ServiceState:
        private_port = ports.find_free_port()
        launch = process.Launch(
            name=NAME,
            command=_command(java.program, program, port=private_port),
            folder=folder,
            environ=os.environ,
            port=port,
            gate=process.Gate(private_port, None if settings.services_secure else credentials),
            secure=settings.services_secure,
        )
        return embedded.launch_until_ready(
            settings, launch, detached=detached, wait=lambda state: _wait_until_ready(settings, state)
        )

    state = embedded.try_again(start, port=port, choose=choose, passing=[PORT_TAKEN])
    embedded.keep_port(folder, state.port)
    report(f"The registry is ready on {ports.HOST}:{state.port} ({time.monotonic() - began:.1f} s)")
    return state


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


def _wait_until_ready(settings: Settings, state: process.ServiceState) -> None:
    embedded.wait_until_ready(
        state,
        title="The registry",
        answers=lambda: is_fine(f"{_url(settings, RegistryService.of(state))}/subjects", timeout=2.0),
        explain=lambda text: _explain_failure(text, log=Path(state.log)),
        pause=0.1,
    )


def _explain_failure(text: str, *, log: Path) -> ServiceError:
    """Return the error for a registry that ended while it started: its telling line, its log, and what to do."""
    if "Address already in use" in text or "already bound" in text:
        what, step = PORT_TAKEN, "Run the command again, or choose a port: HEADRACE_REGISTRY_PORT=<number>"
    elif "OutOfMemoryError" in text or "Could not reserve enough space" in text:
        what, step = "there is too little memory", "End other programs: the registry takes up to 500 MB."
    else:
        what, step = "it ended while it started", "Read the log: headrace logs registry"
    return ServiceError(f"The registry did not start: {what} ({find_telling_line(text)})", where=str(log), next_step=step)


def _answers(settings: Settings, state: process.ServiceState) -> bool:
    return is_fine(f"{_url(settings, RegistryService.of(state))}/subjects", timeout=ANSWER_TIMEOUT)


SERVER = Embedded(NAME, "The registry", launch=_start, answers=_answers, securable=True)


def _check_own(url: str, *, origin: str) -> None:
    if not is_fine(f"{url.rstrip('/')}/subjects", timeout=ANSWER_TIMEOUT):
        raise UnavailableError(
            f"no schema registry answers on {without_secrets(url)}",
            where=f"registry.url, from {origin}" if origin else "registry.url",
            next_step="Start it or fix the address (of Apicurio, the one that ends in /apis/ccompat/v7). Without one (unset"
            " HEADRACE_REGISTRY_URL), Headrace starts a registry of its own.",
        )


def _url(settings: Settings, service: RegistryService) -> str:
    login = f"{USER}:{_password(settings)}@" if service.secure else ""
    return f"http://{login}{ports.HOST}:{service.port}{COMPATIBLE}"


def _password(settings: Settings) -> str:
    return keep_secret(settings.home / NAME / "password")
