"""Read tables of a Postgres in one snapshot: their columns, and their rows in key order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import Connection, IsolationLevel, sql
from psycopg.types.json import set_json_loads

from headrace.operations.compare.values import ARRAY
from headrace.spec.sql.stage_query import staged_name

Key = tuple[Any, ...]
Row = tuple[Any, ...]

_ROWS_AT_ONCE = 100
"""Rows per fetch. Small, because a row can have a megabyte."""
_ORDERED = frozenset(
    ("int2", "int4", "int8", "oid", "numeric", "float4", "float8", "bool", "bytea", "date", "time", "timestamp", "timestamptz")
)
"""Types with the same order in Postgres and DuckDB; other types are ordered by the bytes of their text."""


@dataclass(frozen=True)
class SourceColumn:
    """A column and its type. `filled` means that Postgres gave existing rows its default without writing them."""

    name: str
    kind: str
    filled: bool = False

    @property
    def in_lake(self) -> str:
        """The column's name in the lake."""
        return staged_name(self.name)


@dataclass(frozen=True)
class SourceTable:
    """A table of Postgres. `generated` columns are not part of change events."""

    schema: str
    name: str
    columns: tuple[SourceColumn, ...]
    generated: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.schema}.{self.name}"


@dataclass(frozen=True)
class SourceSnapshot:
    """A snapshot of a Postgres, and an LSN after all changes that it contains."""

    connection: Connection
    lsn: int


@contextmanager
def open_snapshot(dsn: str) -> Iterator[SourceSnapshot]:
    """Yield a read-only, repeatable-read snapshot of the database."""
    with psycopg.connect(dsn, application_name="headrace verify") as connection:
        connection.isolation_level = IsolationLevel.REPEATABLE_READ
        connection.read_only = True
        set_json_loads(_as_text, connection)
        # The snapshot is taken before the function runs, so all its changes are before this LSN.
        row = connection.execute("SELECT (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::bigint").fetchone()
        assert row is not None
        connection.execute("SET LOCAL timezone = 'UTC'")
        yield SourceSnapshot(connection, int(row[0]))


def find_table(connection: Connection, schema: str, name: str) -> SourceTable | None:
    """Return the columns of a table, or None if it does not exist."""
    rows = connection.execute(_COLUMNS, {"schema": schema, "name": name}).fetchall()
    if not rows:
        return None
    columns = tuple(SourceColumn(column, kind, filled) for column, kind, filled, generated in rows if not generated)
    return SourceTable(schema, name, columns, tuple(column for column, _, _, generated in rows if generated))


def rows_in_order(snapshot: SourceSnapshot, table: SourceTable, *, keys: Sequence[str]) -> Iterator[Row]:
    """Yield the rows in key order, in batches. Text is ordered by its bytes, as in the lake."""
    kinds = {column.name: column.kind for column in table.columns}
    order = [sql.SQL("{}" if kinds[key] in _ORDERED else '{}::text COLLATE "C"').format(sql.Identifier(key)) for key in keys]
    query = sql.SQL("{} ORDER BY {}").format(_select(table), sql.SQL(", ").join(order))
    with snapshot.connection.cursor(name="headrace_verify") as cursor:
        cursor.itersize = _ROWS_AT_ONCE
        cursor.execute(query)
        yield from cursor


def find_rows(snapshot: SourceSnapshot, table: SourceTable, *, keys: Sequence[str], wanted: Sequence[Key]) -> Iterator[Row]:
    """Yield the rows of the `wanted` keys."""
    conditions = sql.SQL(" AND ").join(sql.SQL("{} = {}").format(sql.Identifier(key), sql.Placeholder()) for key in keys)
    query = sql.SQL("{} WHERE {}").format(_select(table), conditions)
    for key in wanted:
        yield from snapshot.connection.execute(query, key)


def confirmed_lsn(connection: Connection, *, slot: str) -> int | None:
    """Return the LSN up to which a slot's reader has confirmed changes; None if the slot does not exist."""
    query = "SELECT (confirmed_flush_lsn - '0/0'::pg_lsn)::bigint FROM pg_replication_slots WHERE slot_name = %s"
    row = connection.execute(query, [slot]).fetchone()
    return None if row is None else int(row[0] or 0)


def _select(table: SourceTable) -> sql.Composed:
    names = sql.SQL(", ").join(sql.Identifier(column.name) for column in table.columns)
    return sql.SQL("SELECT {} FROM {}").format(names, sql.Identifier(table.schema, table.name))


def _as_text(document: str | bytes) -> str:
    return document if isinstance(document, str) else document.decode()


_COLUMNS = f"""
WITH RECURSIVE kinds AS (
    SELECT oid, oid AS base, typtype FROM pg_type
    UNION ALL
    SELECT kinds.oid, pg_type.typbasetype, inner_type.typtype
    FROM kinds JOIN pg_type ON pg_type.oid = kinds.base AND pg_type.typtype = 'd'
    JOIN pg_type AS inner_type ON inner_type.oid = pg_type.typbasetype
)
SELECT
    attname::text,
    CASE WHEN base.typcategory = 'A' THEN '{ARRAY}' || element.typname ELSE base.typname END::text,
    atthasmissing,
    attgenerated <> ''
FROM pg_attribute
JOIN pg_class ON pg_class.oid = attrelid
JOIN pg_namespace ON pg_namespace.oid = relnamespace
JOIN kinds ON kinds.oid = atttypid AND kinds.typtype <> 'd'
JOIN pg_type AS base ON base.oid = kinds.base
LEFT JOIN pg_type AS element ON element.oid = base.typelem
WHERE nspname = %(schema)s AND relname = %(name)s AND attnum > 0 AND NOT attisdropped AND relkind IN ('r', 'p')
ORDER BY attnum
"""
