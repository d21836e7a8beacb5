"""The publication progress of each table, stored in Postgres and committed with the rows."""

from __future__ import annotations

from dataclasses import dataclass

import psycopg
from psycopg import sql
from pyiceberg.table import Table

from headrace.iceberg.ledgers.build import BuildLedger
from headrace.iceberg.ledgers.landing import is_rolled_back
from headrace.spec.loading.serving import PROGRESS
from headrace.spec.model.pipeline import PostgresTable

_NAME = sql.Identifier(PROGRESS)
_DDL = sql.SQL(
    "CREATE TABLE IF NOT EXISTS {} (table_name TEXT PRIMARY KEY, source TEXT NOT NULL, generation BIGINT NOT NULL,"
    " build_id BIGINT NOT NULL, row_count BIGINT NOT NULL, published_at TIMESTAMPTZ NOT NULL DEFAULT now())"
).format(_NAME)
_ADDED = {"table_uuid": "TEXT", "snapshot_id": "BIGINT", "sequence_number": "BIGINT", "layout": "TEXT", "shape": "TEXT"}
"""Columns added after the first version. They are null in older progress, whose tables are then published again once."""


@dataclass(frozen=True)
class Progress:
    """The state of the lake's table that Postgres has.

    `snapshot_id` and `sequence_number` identify the snapshot of table `table_uuid`. `layout` describes the published columns;
    if it changes, all rows are published again. `shape` is the digest of the table and DDL that last matched.
    """

    generation: int = -1
    build_id: int = 0
    rows: int = 0
    table_uuid: str = ""
    snapshot_id: int = 0
    sequence_number: int = 0
    layout: str = ""
    shape: str = ""

    @staticmethod
    def of(source: Table, built: BuildLedger, *, rows: int, layout: str, shape: str) -> Progress:
        """Return the progress of a table after publishing `source`."""
        return Progress(
            built.generation,
            built.changed_in,
            rows,
            str(source.metadata.table_uuid),
            built.snapshot_id,
            built.sequence_number,
            layout,
            shape,
        )

    def is_at(self, source: Table, built: BuildLedger) -> bool:
        """Return whether Postgres has the newest build of the lake's table."""
        here = (self.generation, self.build_id, self.table_uuid, self.snapshot_id)
        return here == (built.generation, built.changed_in, str(source.metadata.table_uuid), built.snapshot_id)

    def precedes(self, source: Table, built: BuildLedger) -> bool:
        """Return whether Postgres lacks only the builds after this one.

        It is False after the lake's table was restored, rolled back, recreated or fully rebuilt.
        """
        if (self.generation, self.table_uuid) != (built.generation, str(source.metadata.table_uuid)):
            return False
        if self.build_id >= built.changed_in:
            return False
        return not is_rolled_back(source, snapshot_id=self.snapshot_id, sequence_number=self.sequence_number)


def ensure_progress(cursor: psycopg.Cursor) -> None:
    """Create the progress table, or add its missing columns."""
    if _columns(cursor) >= set(_ADDED):
        return
    cursor.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", (PROGRESS,))
    cursor.execute(_DDL)
    there = _columns(cursor)
    for name, kind in _ADDED.items():
        if name not in there:
            statement = sql.SQL("ALTER TABLE {} ADD COLUMN {} {}")
            cursor.execute(statement.format(_NAME, sql.Identifier(name), sql.SQL(kind)))


def read_progress(cursor: psycopg.Cursor, table: PostgresTable) -> Progress | None:
    """Return the progress of a table, or None if it was not published from this source."""
    if not _columns(cursor) >= set(_ADDED):
        return None
    question = sql.SQL(
        "SELECT generation, build_id, row_count, coalesce(table_uuid, ''), coalesce(snapshot_id, 0),"
        " coalesce(sequence_number, 0), coalesce(layout, ''), coalesce(shape, '') FROM {} WHERE table_name = %s AND source = %s"
    )
    row = cursor.execute(question.format(_NAME), (table.name, str(table.source))).fetchone()
    return Progress(*row) if row else None


def is_known(cursor: psycopg.Cursor, table: PostgresTable) -> bool:
    """Return whether Headrace has published the table before, from any source."""
    cursor.execute(sql.SQL("SELECT 1 FROM {} WHERE table_name = %s").format(_NAME), (table.name,))
    return cursor.fetchone() is not None


def write_progress(cursor: psycopg.Cursor, table: PostgresTable, progress: Progress) -> None:
    statement = sql.SQL(
        "INSERT INTO {} (table_name, source, generation, build_id, row_count, table_uuid, snapshot_id, sequence_number,"
        " layout, shape) VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s)"
        " ON CONFLICT (table_name) DO UPDATE SET source = excluded.source, generation = excluded.generation,"
        " build_id = excluded.build_id, row_count = excluded.row_count, table_uuid = excluded.table_uuid,"
        " snapshot_id = excluded.snapshot_id, sequence_number = excluded.sequence_number, layout = excluded.layout,"
        " shape = excluded.shape, published_at = now()"
    ).format(_NAME)
    values = (progress.generation, progress.build_id, progress.rows, progress.table_uuid)
    more = (progress.snapshot_id, progress.sequence_number, progress.layout, progress.shape)
    cursor.execute(statement, (table.name, str(table.source), *values, *more))


def forget_progress(cursor: psycopg.Cursor, table: PostgresTable) -> None:
    """Delete a table's progress, so that all its rows are published again."""
    cursor.execute(sql.SQL("DELETE FROM {} WHERE table_name = %s").format(_NAME), (table.name,))


def _columns(cursor: psycopg.Cursor) -> set[str]:
    cursor.execute(
        "SELECT attname::text FROM pg_attribute WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped",
        (PROGRESS,),
    )
    return {str(row[0]) for row in cursor.fetchall()}
