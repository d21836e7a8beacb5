"""Apply a folder of migrations to a database with pyway, in a separate process."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import psycopg
from psycopg.conninfo import conninfo_to_dict

from headrace.errors import ServiceError
from headrace.servers.libpq import environ_of
from headrace.servers.postgres import without_password

HISTORY = "public.schema_history"
"""The table of applied migrations with their checksums."""
_LOCK = 0x68656164
"""The advisory lock that keeps migrations from running concurrently."""
_TIMEOUT_SECONDS = 600


def migrate(dsn: str, *, folder: Path) -> int:
    """Apply the pending migrations and return how many. Raises a ServiceError if an applied migration has changed."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("SELECT pg_advisory_lock(%s)", [_LOCK])
        before = _count(connection)
        _run(dsn, folder=folder)
        return _count(connection) - before


def _run(dsn: str, *, folder: Path) -> None:
    parts = {name: str(value) for name, value in conninfo_to_dict(dsn).items() if value is not None}
    arguments = {
        "--database-type": "postgres",
        "--database-table": HISTORY,
        "--database-migration-dir": str(folder),
        "--database-host": parts.get("host") or parts.get("hostaddr") or "localhost",
        "--database-port": parts.get("port", "5432"),
        "--database-name": parts["dbname"],
        "--database-username": parts.get("user") or os.environ.get("PGUSER") or parts["dbname"],
    }
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PYWAY_")}
    environ |= environ_of(dsn)
    with tempfile.TemporaryDirectory() as empty:  # pyway reads a settings file from its working folder
        done = subprocess.run(
            [sys.executable, "-m", "pyway.scripts.main", *(part for pair in arguments.items() for part in pair), "migrate"],
            cwd=empty,
            env=environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_SECONDS,
            check=False,
        )
    if done.returncode != 0:
        lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        telling = [line for line in lines if line.startswith(("RuntimeError:", "ModuleNotFoundError:", "psycopg2."))]
        what = (telling or lines or ["it gave no reason"])[-1].removeprefix("RuntimeError: ")
        raise ServiceError(
            f"{without_password(dsn)} could not be migrated: {what}",
            where=str(folder),
            next_step="Fix the file; to change an applied migration, add a new one. The history is in "
            f"{HISTORY}. Then run the command again.",
        )


def _count(connection: psycopg.Connection) -> int:
    history = connection.execute("SELECT to_regclass(%s)", [HISTORY]).fetchone()
    if history is None or history[0] is None:
        return 0
    row = connection.execute(f"SELECT count(*) FROM {HISTORY}").fetchone()
    return int(row[0]) if row else 0
