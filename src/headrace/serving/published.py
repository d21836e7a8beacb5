"""How far tables of Postgres are, as Postgres says it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import psycopg
from psycopg import sql

from headrace.serving.figures import PublishedStatus
from headrace.spec.pipeline import PostgresTable
from headrace.spec.serving import PROGRESS

_QUESTION = sql.SQL("SELECT table_name, source, row_count, build_id, published_at FROM {}").format(sql.Identifier(PROGRESS))
_PATIENCE_SECONDS = 2


def read_published(dsn: str | None, tables: Sequence[PostgresTable], *, now: datetime) -> tuple[PublishedStatus, ...]:
    """Gives back the figures of these tables; a Postgres that does not run or answer has none to tell."""
    found = _read(dsn) if dsn and tables else {}
    return tuple(_status(table, found.get((table.name, str(table.source))), now) for table in tables)


def _read(dsn: str) -> dict[tuple[str, str], tuple[int, int, datetime]]:
    try:
        with psycopg.connect(dsn, connect_timeout=_PATIENCE_SECONDS) as connection:
            rows = connection.execute(_QUESTION).fetchall()
    except psycopg.Error:
        return {}
    return {(name, source): (count, build_id, at) for name, source, count, build_id, at in rows}


def _status(table: PostgresTable, found: tuple[int, int, datetime] | None, now: datetime) -> PublishedStatus:
    if found is None:
        return PublishedStatus(table.name, str(table.source))
    rows, build_id, at = found
    age = max(0.0, (now - at).total_seconds())
    return PublishedStatus(table.name, str(table.source), rows, build_id, at, age)
