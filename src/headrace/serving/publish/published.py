"""Read the publication progress of tables from Postgres."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import psycopg
from psycopg import sql
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from headrace.iceberg.catalog.tables import load_table
from headrace.iceberg.ledgers.build import read_build
from headrace.serving.figures import PublishedStatus
from headrace.spec.loading.serving import PROGRESS
from headrace.spec.model.pipeline import PostgresTable

_QUESTION = sql.SQL("SELECT table_name, source, row_count, build_id, published_at FROM {}").format(sql.Identifier(PROGRESS))
_TIMEOUT_SECONDS = 2


def read_published(
    dsn: str | None, tables: Sequence[PostgresTable], *, catalog: Catalog, now: datetime
) -> tuple[PublishedStatus, ...]:
    """Return the figures of these tables; without rows if Postgres does not run or answer."""
    progress = _read(dsn) if dsn and tables else {}
    return tuple(_status(table, progress.get((table.name, str(table.source))), catalog, now) for table in tables)


def _read(dsn: str) -> dict[tuple[str, str], tuple[int, int, datetime]]:
    try:
        with psycopg.connect(dsn, connect_timeout=_TIMEOUT_SECONDS) as connection:
            rows = connection.execute(_QUESTION).fetchall()
    except psycopg.Error:
        return {}
    return {(name, source): (count, build_id, at) for name, source, count, build_id, at in rows}


def _status(
    table: PostgresTable, progress: tuple[int, int, datetime] | None, catalog: Catalog, now: datetime
) -> PublishedStatus:
    if progress is None:
        return PublishedStatus(table.name, str(table.source))
    rows, build_id, at = progress
    age = max(0.0, (now - at).total_seconds())
    behind = _seconds_behind(load_table(catalog, table.source), build_id, now)
    return PublishedStatus(table.name, str(table.source), rows, build_id, at, age, behind)


def _seconds_behind(source: Table | None, build_id: int, now: datetime) -> float:
    """Return for how long the lake has had a build that Postgres lacks."""
    built = read_build(source)
    if source is None or build_id == built.changed_in:
        return 0.0
    snapshot = source.snapshot_by_id(built.snapshot_id) if built.snapshot_id else None
    built_at_ms = snapshot.timestamp_ms if snapshot else built.built_at_us / 1_000
    return max(0.0, now.timestamp() - built_at_ms / 1_000)
