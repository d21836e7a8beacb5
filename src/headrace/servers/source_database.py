"""The captured database: find it, prepare it, and manage its publications and replication slots."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from headrace.errors import ServiceError, UnavailableError
from headrace.plurals import count_that_are
from headrace.servers.embedded import Report
from headrace.servers.migrations import migrate
from headrace.servers.postgres import find_postgres, start_postgres, without_password
from headrace.servers.postgres_server import CAPTURE_ROLE, choose_password
from headrace.settings import SECRETS, Settings
from headrace.spec.model.pipeline import Capture

_TIMEOUT_SECONDS = 10
_MAKING = 0x68656165
"""The advisory lock under which a command creates a database and its role."""


@dataclass(frozen=True)
class SourceDatabase:
    """A database: its owner's connection string (`dsn`), the role that reads its changes, and whether Headrace runs it."""

    dsn: str = field(repr=False)
    user: str
    password: str = field(repr=False)
    is_ours: bool

    @property
    def parts(self) -> dict[str, str]:
        return {name: str(value) for name, value in conninfo_to_dict(self.dsn).items() if value is not None}

    @property
    def shown(self) -> str:
        return without_password(self.dsn)


@dataclass(frozen=True)
class Slot:
    """A replication slot: the bytes of WAL that its reader has not confirmed, and whether a reader is connected.

    `wal_status` is `lost` if the server no longer retains the WAL for it.
    """

    name: str
    lag_bytes: int | None
    active: bool
    wal_status: str | None


def find_database(settings: Settings, capture: Capture) -> SourceDatabase | None:
    """Return the database of a pipeline, or None if its server does not run. Starts nothing."""
    server = capture.url or find_postgres(settings)
    if server is None:
        return None
    is_ours = capture.url is None and settings.postgres_url is None
    dsn = server if capture.url else make_conninfo(server, dbname=capture.database)
    parts = conninfo_to_dict(dsn)
    if is_ours or settings.debezium_password is not None:
        password = settings.debezium_password
        if is_ours:
            password = choose_password(
                settings.home / "postgres", password, name=CAPTURE_ROLE, variable=SECRETS["debezium_password"]
            )
        return SourceDatabase(dsn, CAPTURE_ROLE, password or "", is_ours)
    return SourceDatabase(dsn, str(parts.get("user") or ""), str(parts.get("password") or ""), is_ours)


def ready_database(settings: Settings, capture: Capture, *, report: Report) -> SourceDatabase:
    """Return a pipeline's database after applying its migrations.

    Starts Headrace's own server if it does not run, and creates the database and its capture role there. Raises a ServiceError
    if the server's wal_level is not logical, and an UnavailableError if it does not answer.
    """
    if capture.url is None and settings.postgres_url is None and find_postgres(settings) is None:
        start_postgres(settings, detached=False, report=report)
    database = find_database(settings, capture)
    if database is None:
        raise UnavailableError("Postgres has just stopped", where=capture.database, next_step="Run: headrace status")
    try:
        if database.is_ours:
            _make(database, server=find_postgres(settings) or "")
        if capture.migrations is not None:
            applied = migrate(database.dsn, folder=capture.migrations)
            if applied:
                report(f"{count_that_are(applied, 'migration')} applied to {capture.database}")
        _check_level(database)
    except psycopg.OperationalError as error:
        raise UnavailableError(
            f"could not connect to Postgres on {database.shown}: {_first_line(error)}",
            where="sources.postgres.url" if capture.url else "postgres.url",
            next_step="Start it or fix the URL, then run the command again.",
        ) from error
    return database


def publish_tables(database: SourceDatabase, name: str, *, patterns: Iterable[str], tables: Iterable[str]) -> tuple[str, ...]:
    """Create or update a publication and return its tables: `tables`, and all whose full name matches a pattern.

    Idempotent by its name: an existing publication gets exactly these tables.
    """
    with _connection(database) as connection:
        wanted = [f"^({pattern})$" for pattern in patterns]
        rows = connection.execute(
            "SELECT n.nspname, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
            " WHERE c.relkind IN ('r', 'p') AND n.nspname NOT LIKE 'pg_%%' AND n.nspname <> 'information_schema'"
            " AND ((n.nspname || '.' || c.relname) ~ ANY (%s) OR (n.nspname || '.' || c.relname) = ANY (%s)) ORDER BY 1, 2",
            [wanted, list(tables)],
        ).fetchall()
        if not rows:
            raise ServiceError(
                f"no table of {database.shown} matches {', '.join(patterns)}",
                where=f"publication {name}",
                next_step="Create the tables, or fix table.include.list in the connector's template.",
            )
        listed = sql.SQL(", ").join(sql.Identifier(*row) for row in rows)
        publication = connection.execute("SELECT puballtables FROM pg_publication WHERE pubname = %s", [name]).fetchone()
        if publication is None:
            connection.execute(sql.SQL("CREATE PUBLICATION {} FOR TABLE {}").format(sql.Identifier(name), listed))
        elif not publication[0] and _published(connection, name) != {tuple(row) for row in rows}:
            connection.execute(sql.SQL("ALTER PUBLICATION {} SET TABLE {}").format(sql.Identifier(name), listed))
        return tuple(".".join(row) for row in rows)


def drop_publication(database: SourceDatabase, name: str) -> None:
    """Drop a publication if it exists."""
    with _connection(database) as connection:
        connection.execute(sql.SQL("DROP PUBLICATION IF EXISTS {}").format(sql.Identifier(name)))


def drop_slot(database: SourceDatabase, name: str) -> bool:
    """Drop a slot once its reader has disconnected, waiting up to 10 seconds; return whether the slot existed."""
    with _connection(database) as connection:
        for left in range(100, -1, -1):
            row = connection.execute("SELECT active FROM pg_replication_slots WHERE slot_name = %s", [name]).fetchone()
            if row is None:
                return False
            try:
                connection.execute("SELECT pg_drop_replication_slot(%s)", [name])
                return True
            except psycopg.errors.ObjectInUse:
                if not left:
                    raise
                connection.execute("SELECT pg_sleep(0.1)")
    return False


def read_slot(database: SourceDatabase, name: str) -> Slot | None:
    """Return a slot of the database's server, or None if it does not exist."""
    with _connection(database) as connection:
        row = connection.execute(
            "SELECT slot_name, pg_wal_lsn_diff(pg_current_wal_lsn(), confirmed_flush_lsn)::bigint, active, wal_status"
            " FROM pg_replication_slots WHERE slot_name = %s",
            [name],
        ).fetchone()
    return Slot(*row) if row else None


def _make(database: SourceDatabase, *, server: str) -> None:
    """Create the database and the role if they are missing, and set the role's password."""
    name = database.parts["dbname"]
    with psycopg.connect(server, autocommit=True, connect_timeout=_TIMEOUT_SECONDS) as connection:
        connection.execute("SELECT pg_advisory_lock(%s)", [_MAKING])
        if connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [name]).fetchone() is None:
            connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        role = sql.Identifier(database.user)
        if connection.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", [database.user]).fetchone() is None:
            connection.execute(sql.SQL("CREATE ROLE {} LOGIN REPLICATION").format(role))
        connection.execute(sql.SQL("ALTER ROLE {} PASSWORD {}").format(role, sql.Literal(database.password)))


def _check_level(database: SourceDatabase) -> None:
    with _connection(database) as connection:
        row = connection.execute("SHOW wal_level").fetchone()
    if row is None or row[0] != "logical":
        raise ServiceError(
            f"capturing {database.shown} requires wal_level logical, and it is {row[0] if row else 'not known'}",
            where="sources.postgres",
            next_step="Set wal_level=logical on the server, restart it, then run the command again.",
        )


def _published(connection: psycopg.Connection, name: str) -> set[tuple[str, ...]]:
    rows = connection.execute("SELECT schemaname, tablename FROM pg_publication_tables WHERE pubname = %s", [name])
    return {tuple(row) for row in rows.fetchall()}


def _connection(database: SourceDatabase) -> psycopg.Connection:
    try:
        return psycopg.connect(database.dsn, autocommit=True, connect_timeout=_TIMEOUT_SECONDS)
    except psycopg.OperationalError as error:
        raise UnavailableError(
            f"could not connect to Postgres on {database.shown}: {_first_line(error)}", next_step="Run: headrace status"
        ) from error


def _first_line(error: Exception) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
