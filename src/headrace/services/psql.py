"""psql, the program that comes with Postgres, on a database of ours or of the user's."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence

from psycopg.conninfo import conninfo_to_dict

from headrace.errors import ServiceError
from headrace.services.postgres_server import find_programs

_VARIABLES = {
    "host": "PGHOST",
    "port": "PGPORT",
    "dbname": "PGDATABASE",
    "user": "PGUSER",
    "password": "PGPASSWORD",
    "sslmode": "PGSSLMODE",
    "sslrootcert": "PGSSLROOTCERT",
    "options": "PGOPTIONS",
}


def open_psql(dsn: str, arguments: Sequence[str] = ()) -> int:
    """Gives back how psql ended, with the terminal as its own."""
    return subprocess.run([_program(), *arguments], env=_environ(dsn), check=False).returncode


def run_statement(dsn: str, statement: str) -> str:
    """Gives back what psql says of one statement; one that fails is a ServiceError."""
    done = subprocess.run(
        [_program(), "--no-psqlrc", "--set", "ON_ERROR_STOP=1", "--command", statement],
        env=_environ(dsn),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise ServiceError(
            f"psql could not do it: {done.stderr.strip()}", where=statement, next_step="Fix the statement, then try again."
        )
    return done.stdout.strip()


def _program() -> str:
    return str(find_programs() / "psql")


def _environ(dsn: str) -> Mapping[str, str]:
    """Gives back the environment that says which database is meant: in arguments every user of the machine could read it."""
    parts = conninfo_to_dict(dsn)
    named = {variable: str(parts[name]) for name, variable in _VARIABLES.items() if parts.get(name) is not None}
    return {**os.environ, **named}
