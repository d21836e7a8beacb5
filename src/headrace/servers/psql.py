"""psql, the program that comes with Postgres, on a database of ours or of the user's."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence

from headrace.errors import ServiceError
from headrace.servers.libpq import environ_of
from headrace.servers.postgres_server import find_programs


def open_psql(dsn: str, arguments: Sequence[str] = ()) -> int:
    """Return how psql ended, with the terminal as its own."""
    return subprocess.run([_program(), *arguments], env={**os.environ, **environ_of(dsn)}, check=False).returncode


def run_statement(dsn: str, statement: str) -> str:
    """Return what psql says of one statement; one that fails is a ServiceError."""
    done = subprocess.run(
        [_program(), "--no-psqlrc", "--set", "ON_ERROR_STOP=1", "--command", statement],
        env={**os.environ, **environ_of(dsn)},
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
