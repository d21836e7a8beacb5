"""Publishes layer tables to Postgres: what changed since the last time, and how far that was, in one transaction.

Exactly once: the progress stands in the same database and is committed with the rows, so a crash leaves both or neither. Rows
are written by their primary key, so what is published twice is there once. Only builds after the last published one are read: a
row says itself which build wrote it.

Rows that went away are noticed by counting. After the changed rows are in, Postgres has every row of the table; if it has more
than the table, the others are looked for and deleted.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import psycopg
from psycopg import sql
from pyiceberg.catalog import Catalog
from pyiceberg.table import ALWAYS_TRUE, Table

from headrace.errors import PublishError, UnavailableError
from headrace.spec.layers import BUILD_ID
from headrace.spec.pipeline import PostgresTable
from headrace.spec.serving import PROGRESS
from headrace.tables.build_ledger import BuildLedger, read_build
from headrace.tables.catalog import count_rows, load_table

_INCOMING = sql.Identifier("headrace_incoming")
_PROGRESS_DDL = sql.SQL(
    "CREATE TABLE IF NOT EXISTS {} (table_name TEXT PRIMARY KEY, source TEXT NOT NULL, generation BIGINT NOT NULL,"
    " build_id BIGINT NOT NULL, row_count BIGINT NOT NULL, published_at TIMESTAMPTZ NOT NULL DEFAULT now())"
).format(sql.Identifier(PROGRESS))


@dataclass(frozen=True)
class Published:
    """What a publication did: rows that came or changed, rows that went, the build that Postgres has now, how long it took."""

    table: PostgresTable
    build_id: int
    rows: int
    gone: int
    seconds: float


@dataclass(frozen=True)
class _Progress:
    generation: int
    build_id: int
    rows: int


def publish(dsn: str, catalog: Catalog, table: PostgresTable) -> Published | None:
    """Brings a table of Postgres up to its layer table; gives back None where there was nothing to do.

    Idempotent by the primary key, and by the progress that is committed with the rows. Two at a time wait for one another.
    """
    try:
        with psycopg.connect(dsn, connect_timeout=10) as connection, connection.cursor() as cursor:
            cursor.execute("SET LOCAL timezone = 'UTC'")
            cursor.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", (f"headrace {table.name}",))
            return _publish(cursor, load_table(catalog, table.source), table)
    except psycopg.OperationalError as error:
        raise UnavailableError(
            f"Postgres is away: {_first_line(error)}", where=f"table {table.name}", next_step="See: headrace status"
        ) from error
    except psycopg.Error as error:
        raise PublishError(
            f"Postgres refuses the rows of {table.source}: {_first_line(error)}",
            where=f"table {table.name} in Postgres",
            next_step="Nothing was published. Let the columns of the DDL fit those of the table.",
        ) from error


def _publish(cursor: psycopg.Cursor, source: Table | None, table: PostgresTable) -> Published | None:
    started = time.monotonic()
    _make_tables(cursor, table)
    built = read_build(source)
    progress = _read_progress(cursor, table)
    if source is None or not built.build_id:
        return None
    if (progress.generation, progress.build_id) == (built.generation, built.changed_in):
        return None
    columns = _columns(cursor, source, table)
    follows = progress.generation == built.generation and progress.build_id < built.changed_in
    rows = _rows(source, columns, since=progress.build_id, until=built.build_id) if follows else _rows(source, columns)
    _copy(cursor, table, columns, rows)
    inserted, updated = _upsert(cursor, table, columns)
    gone = 0
    expected = count_rows(source)
    if not follows or progress.rows + inserted != expected:
        if follows:
            _copy(cursor, table, columns, _rows(source, columns))
        gone = _delete_others(cursor, table)
    _write_progress(cursor, table, built, rows=expected)
    return Published(table, built.changed_in, rows=inserted + updated, gone=gone, seconds=time.monotonic() - started)


def _make_tables(cursor: psycopg.Cursor, table: PostgresTable) -> None:
    cursor.execute(_PROGRESS_DDL)
    cursor.execute("SELECT to_regclass(%s)", (f'"{table.name}"',))
    if cursor.fetchone() == (None,):
        cursor.execute(table.ddl.encode())
        # A table that was dropped by hand begins anew.
        cursor.execute(sql.SQL("DELETE FROM {} WHERE table_name = %s").format(sql.Identifier(PROGRESS)), (table.name,))


def _read_progress(cursor: psycopg.Cursor, table: PostgresTable) -> _Progress:
    question = sql.SQL("SELECT generation, build_id, row_count FROM {} WHERE table_name = %s AND source = %s")
    cursor.execute(question.format(sql.Identifier(PROGRESS)), (table.name, str(table.source)))
    found = cursor.fetchone()
    return _Progress(*found) if found else _Progress(-1, 0, 0)


def _write_progress(cursor: psycopg.Cursor, table: PostgresTable, built: BuildLedger, *, rows: int) -> None:
    statement = sql.SQL(
        "INSERT INTO {} (table_name, source, generation, build_id, row_count) VALUES (%s, %s, %s, %s, %s)"
        " ON CONFLICT (table_name) DO UPDATE SET source = excluded.source, generation = excluded.generation,"
        " build_id = excluded.build_id, row_count = excluded.row_count, published_at = now()"
    ).format(sql.Identifier(PROGRESS))
    cursor.execute(statement, (table.name, str(table.source), built.generation, built.changed_in, rows))


def _columns(cursor: psycopg.Cursor, source: Table, table: PostgresTable) -> tuple[str, ...]:
    """Gives back the columns that both have; one that only Postgres has must have a default there."""
    cursor.execute(
        "SELECT column_name, column_default IS NOT NULL FROM information_schema.columns"
        " WHERE table_schema = current_schema() AND table_name = %s ORDER BY ordinal_position",
        (table.name,),
    )
    found = {str(name): bool(has_default) for name, has_default in cursor.fetchall()}
    theirs = {field.name for field in source.schema().fields}
    for name, has_default in found.items():
        if name not in theirs and not has_default:
            raise PublishError(
                f'{table.source} has no column "{name}"',
                where=f"table {table.name} in Postgres",
                next_step=f"Columns are: {', '.join(sorted(theirs - {BUILD_ID}))}. Fix the DDL, or give the column a default.",
            )
    missing = [name for name in table.primary_key if name not in found]
    if missing:
        raise PublishError(
            f'the table has no column "{missing[0]}": it was made by another DDL',
            where=f"table {table.name} in Postgres",
            next_step="Drop or rename it there; it is then made and filled anew.",
        )
    return tuple(name for name in found if name in theirs)


def _rows(source: Table, columns: Sequence[str], *, since: int | None = None, until: int = 0) -> Iterator[tuple[object, ...]]:
    """Gives back the rows that builds after `since` wrote, or all; in pieces, so that memory does not grow with the table."""
    chosen = ALWAYS_TRUE if since is None else f"{BUILD_ID} > {since} AND {BUILD_ID} <= {until}"
    for batch in source.scan(row_filter=chosen, selected_fields=tuple(columns)).to_arrow_batch_reader():
        for row in batch.to_pylist():
            yield tuple(_as_value(row[name]) for name in columns)


def _as_value(value: object) -> object:
    return json.dumps(value, default=str) if isinstance(value, (dict, list)) else value


def _copy(cursor: psycopg.Cursor, table: PostgresTable, columns: Sequence[str], rows: Iterator[tuple[object, ...]]) -> None:
    cursor.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(_INCOMING))
    made = sql.SQL("CREATE TEMPORARY TABLE {} ON COMMIT DROP AS SELECT {} FROM {} LIMIT 0")
    cursor.execute(made.format(_INCOMING, _names(columns), sql.Identifier(table.name)))
    with cursor.copy(sql.SQL("COPY {} ({}) FROM STDIN").format(_INCOMING, _names(columns))) as copy:
        for row in rows:
            copy.write_row(row)


def _upsert(cursor: psycopg.Cursor, table: PostgresTable, columns: Sequence[str]) -> tuple[int, int]:
    """Gives back how many rows were new and how many changed. Columns of Postgres's own get their default again."""
    values = [name for name in columns if name not in table.primary_key]
    own = [name for name in table.columns if name not in columns]
    sets = [sql.SQL("{0} = excluded.{0}").format(sql.Identifier(name)) for name in values]
    sets += [sql.SQL("{} = DEFAULT").format(sql.Identifier(name)) for name in own]
    change = sql.SQL("UPDATE SET {} WHERE ({}) IS DISTINCT FROM ({})").format(
        sql.SQL(", ").join(sets),
        sql.SQL(", ").join(sql.SQL("old.{}").format(sql.Identifier(name)) for name in values),
        sql.SQL(", ").join(sql.SQL("excluded.{}").format(sql.Identifier(name)) for name in values),
    )
    statement = sql.SQL(
        "WITH done AS (INSERT INTO {target} AS old ({names}) SELECT {names} FROM {incoming}"
        " ON CONFLICT ({key}) DO {what} RETURNING (xmax = 0) AS is_new)"
        " SELECT count(*) FILTER (WHERE is_new), count(*) FILTER (WHERE NOT is_new) FROM done"
    ).format(
        target=sql.Identifier(table.name),
        names=_names(columns),
        incoming=_INCOMING,
        key=_names(table.primary_key),
        what=change if values else sql.SQL("NOTHING"),
    )
    found = cursor.execute(statement).fetchone()
    assert found is not None
    return int(found[0]), int(found[1])


def _delete_others(cursor: psycopg.Cursor, table: PostgresTable) -> int:
    """Deletes the rows whose key did not come in; gives back how many there were."""
    same = sql.SQL(" AND ").join(sql.SQL("new.{0} = old.{0}").format(sql.Identifier(name)) for name in table.primary_key)
    statement = sql.SQL("DELETE FROM {} AS old WHERE NOT EXISTS (SELECT FROM {} AS new WHERE {})")
    cursor.execute(statement.format(sql.Identifier(table.name), _INCOMING, same))
    return cursor.rowcount


def _names(columns: Sequence[str]) -> sql.Composed:
    return sql.SQL(", ").join(map(sql.Identifier, columns))


def _first_line(error: psycopg.Error) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
