"""Run psql on Headrace's Postgres or on the user's own."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence

from headrace.errors import ServiceError
from headrace.servers.libpq import environ_of
from headrace.servers.postgres_server import find_programs


def open_psql(dsn: str, arguments: Sequence[str] = ()) -> int:
    """Run psql on the terminal and return its exit code."""
    return subprocess.run([_program(), *arguments], env={**os.environ, **environ_of(dsn)}, check=False).returncode


def run_statement(dsn: str, statement: str) -> str:
    """Run one statement and return psql's output. Raises a ServiceError if it fails."""
    done = subprocess.run(
        [_program(), "--no-psqlrc", "--set", "ON_ERROR_STOP=1", "--command", statement],
        env={**os.environ, **environ_of(dsn)},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise ServiceError(
            f"psql failed: {done.stderr.strip()}", where=statement, next_step="Fix the statement, then try again."
        )
    return done.stdout.strip()


def _program() -> str:
    return str(find_programs() / "psql")
