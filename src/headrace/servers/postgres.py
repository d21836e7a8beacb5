"""Postgres for a command: the user's own, or a server that Headrace starts, shares and stops (see embedded.py)."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from headrace.errors import SettingsError, UnavailableError
from headrace.servers import embedded, ports, postgres_server, process
from headrace.servers.embedded import Embedded, Report, RunningService
from headrace.servers.failed_start import PORT_TAKEN
from headrace.servers.launcher import Launcher
from headrace.settings import Settings

NAME = "postgres"
ANSWER_TIMEOUT = 10.0


@dataclass(frozen=True)
class PostgresService(RunningService):
    """A running Postgres; `dsn` is its connection string, with the password."""

    dsn: str = field(default="", repr=False)


@contextmanager
def postgres(settings: Settings, *, report: Report) -> Iterator[str]:
    """Yield the connection string of a Postgres that answers; stop it at the end if nothing else uses it.

    The user's own Postgres keeps running.
    The string contains the password: use it to connect, never print it (see `without_password`).
    """
    if settings.postgres_url:
        _check_own(settings.postgres_url, origin=settings.origins.get("postgres.url", ""))
        yield settings.postgres_url
        return
    with embedded.use(SERVER, settings, report=report) as state:
        yield _dsn(settings, state)


def running_postgres(settings: Settings) -> PostgresService | None:
    """Return this home's Postgres if it runs and has been ready, else None."""
    state = embedded.running(SERVER, settings)
    return None if state is None else _as_service(settings, state)


def find_postgres(settings: Settings) -> str | None:
    """Return the connection string of the user's own Postgres, else of the running one. Starts nothing."""
    service = None if settings.postgres_url else running_postgres(settings)
    return service.dsn if service else settings.postgres_url


def start_postgres(settings: Settings, *, detached: bool, report: Report) -> PostgresService:
    """Return this home's Postgres; start it if it does not run.

    Detached it runs until `stop_postgres`, otherwise until the last process that uses it ends.
    """
    return _as_service(settings, embedded.start(SERVER, settings, detached=detached, report=report))


def stop_postgres(settings: Settings, *, report: Report = lambda line: None) -> bool:
    """Stop Postgres, even if other commands use it; return whether it was running."""
    return embedded.stop(SERVER, settings, report=report)


def without_password(dsn: str) -> str:
    """Return a connection string without its password, for messages: `analytics@127.0.0.1:7777/analytics`."""
    try:
        parts = conninfo_to_dict(dsn)
    except psycopg.Error:
        return "an address that can't be read"
    user = f"{parts['user']}@" if parts.get("user") else ""
    port = f":{parts['port']}" if parts.get("port") else ""
    return f"{user}{parts.get('host') or parts.get('hostaddr') or 'localhost'}{port}/{parts.get('dbname') or ''}"


def _prepare(settings: Settings, report: Report) -> Callable[[int], process.Launch]:
    server = postgres_server.prepare(settings.home)

    def launch(port: int) -> process.Launch:
        postgres_server.initialise(server)
        postgres_server.set_rights(server, postgres_server.choose_password(server.folder, settings.postgres_password))
        return process.Launch(
            name=NAME,
            command=server.command(port=port),
            folder=server.data,
            environ=os.environ,
            port=port,
            user=server.user,
            ending=signal.SIGINT,  # a fast shutdown; SIGTERM would wait for every client to disconnect
        )

    return launch


def _is_ready(settings: Settings, state: process.ServiceState) -> bool:
    return _try(_dsn(settings, state)) is None


def _answers(settings: Settings, state: process.ServiceState) -> bool:
    problem = _try(_dsn(settings, state))
    if problem and "password authentication failed" in problem:
        raise SettingsError(
            "Postgres was started with another password",
            where=f"{ports.HOST}:{state.port}",
            next_step="Set HEADRACE_POSTGRES_PASSWORD to that password, or run: headrace down   then the command again.",
        )
    return problem is None


_LAUNCHER = Launcher(
    NAME,
    "Postgres",
    port=lambda settings: settings.postgres_port,
    prepare=_prepare,
    is_ready=_is_ready,
    signs=postgres_server.failure_signs,
    retryable=(PORT_TAKEN, postgres_server.STILL_ENDING),
    pause=0.05,
)
SERVER = Embedded(NAME, _LAUNCHER.title, launch=_LAUNCHER, answers=_answers)


def _check_own(url: str, *, origin: str) -> None:
    where = f"postgres.url, from {origin}" if origin else "postgres.url"
    try:
        conninfo_to_dict(url)
    except psycopg.Error:
        raise SettingsError(
            "postgres.url is not a Postgres URL",
            where=where,
            next_step="Write it as postgresql://user@host:5432/database, with the password in the URL or in PGPASSWORD.",
        ) from None
    problem = _try(url)
    if problem is not None:
        raise UnavailableError(
            f"could not connect to Postgres on {without_password(url)}: {problem}",
            where=where,
            next_step="Start it or fix the URL. If HEADRACE_POSTGRES_URL is unset, Headrace starts its own Postgres.",
        )


def _try(dsn: str) -> str | None:
    """Return None if a connection succeeds, else the first line of the error."""
    try:
        psycopg.connect(dsn, connect_timeout=int(ANSWER_TIMEOUT)).close()
    except psycopg.Error as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        return lines[0] if lines else type(error).__name__
    return None


def _dsn(settings: Settings, state: process.ServiceState) -> str:
    password = postgres_server.choose_password(settings.home / NAME, settings.postgres_password)
    role = postgres_server.ROLE
    return make_conninfo(host=ports.HOST, port=state.port, dbname=role, user=role, password=password)


def _as_service(settings: Settings, state: process.ServiceState) -> PostgresService:
    return replace(PostgresService.of(state), dsn=_dsn(settings, state))
