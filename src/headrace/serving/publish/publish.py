"""Publish layer tables to Postgres: the rows that changed since the last publication, with the progress, in one transaction.

Exactly once: the progress is stored in the same database and committed with the rows, so a crash leaves both or neither. Rows
are upserted by their primary key, so publishing a row twice leaves one row. Only rows of builds after the last published one
are read; a row's `_build_id` names its build.

All rows are compared and upserted if the last published build does not precede the lake's newest one (another generation, a
restored backup), if the published columns changed, and with --full.

Deleted rows are detected by counting. After the upsert, Postgres has every row of the lake's table; if it has more, the rows
whose key is not in the lake are deleted.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import psycopg
from psycopg import sql
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from headrace.errors import PublishError, UnavailableError
from headrace.iceberg.catalog.tables import count_rows, load_table
from headrace.iceberg.ledgers.build import read_build
from headrace.iceberg.schema.added_columns import added_columns, shown_columns
from headrace.serving.publish.incoming import INCOMING, copy_rows
from headrace.serving.publish.postgres_table import (
    PostgresColumn,
    SchemaChange,
    TableShape,
    comparable,
    list_changes,
    list_not_null,
    names,
    quote,
    read_ddl_shape,
    read_shape,
)
from headrace.serving.publish.publish_progress import (
    Progress,
    ensure_progress,
    forget_progress,
    is_known,
    read_progress,
    write_progress,
)
from headrace.spec.model.pipeline import PostgresTable


@dataclass(frozen=True)
class Published:
    """The result of a publication.

    `build_id` is the build that Postgres has now, `rows` the rows added or changed, and `gone` the rows deleted.
    """

    table: PostgresTable
    build_id: int
    rows: int
    gone: int
    seconds: float


def publish(
    dsn: str, catalog: Catalog, table: PostgresTable, *, full: bool = False, pipeline: str = "PIPELINE"
) -> Published | None:
    """Update a table of Postgres from its layer table; return None if it is up to date.

    Adds columns of the DDL that Postgres lacks. With `full`, changes the table to the columns, types and key of the DDL, and
    compares and upserts every row. Idempotent by the primary key, and by the progress that is committed with the rows.
    Concurrent publications of a table wait for each other. Errors name the `pipeline`.

    Raises a PublishError if Postgres rejects a row or a change of the table, and an UnavailableError during its outage.
    """
    started = time.monotonic()
    with explained(table), psycopg.connect(dsn, connect_timeout=10) as connection:
        with _locked(connection, table) as cursor:
            _prepare(cursor, table)
        with _locked(connection, table) as cursor:
            source = load_table(catalog, table.source)
            repair = f"headrace publish {pipeline} --table {table.name} --full"
            return _publish(cursor, source, table, full=full, repair=repair, started=started)


@contextmanager
def explained(table: PostgresTable) -> Iterator[None]:
    """Translate errors of Postgres to a PublishError or an UnavailableError."""
    try:
        yield
    except psycopg.OperationalError as error:
        raise UnavailableError(
            f"Postgres is unavailable: {_first_line(error)}", where=f"table {table.name}", next_step="See: headrace status"
        ) from error
    except psycopg.Error as error:
        raise PublishError(
            f"Postgres rejected the rows of {table.source}: {_first_line(error)}",
            where=f"table {table.name} in Postgres",
            next_step="Nothing was published. Change the columns of the DDL so that they fit those of the table.",
        ) from error


@contextmanager
def _locked(connection: psycopg.Connection, table: PostgresTable) -> Iterator[psycopg.Cursor]:
    with connection.transaction(), connection.cursor() as cursor:
        cursor.execute("SET LOCAL timezone = 'UTC'")
        cursor.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", (f"headrace {table.name}",))
        yield cursor


def _prepare(cursor: psycopg.Cursor, table: PostgresTable) -> None:
    """Create the table, or add the columns that only the DDL has.

    This is a separate transaction, because ALTER TABLE blocks readers and publishing all rows after it may take long.
    """
    ensure_progress(cursor)
    actual = read_shape(cursor, f'"{table.name}"')
    if actual is None:
        cursor.execute(table.ddl.encode())
        forget_progress(cursor, table)
        return
    progress = read_progress(cursor, table) or Progress()
    # Headrace never published an unknown table, so it is the user's: only `full` may change it.
    if is_known(cursor, table) and progress.shape != _shape_digest(table, actual):
        wanted = read_ddl_shape(cursor, table)
        _apply(cursor, table, [change for change in list_changes(table, actual=actual, wanted=wanted) if change.kind == "add"])


def _publish(
    cursor: psycopg.Cursor, source: Table | None, table: PostgresTable, *, full: bool, repair: str, started: float
) -> Published | None:
    built = read_build(source)
    if source is None or not built.build_id:
        return None
    progress = read_progress(cursor, table) or Progress()
    actual = _need_shape(cursor, table)
    fits = progress.shape == _shape_digest(table, actual)
    wanted = None if fits and not full else read_ddl_shape(cursor, table)
    if wanted is not None:
        changes = list_changes(table, actual=actual, wanted=wanted)
        if full:
            actual = _repair(cursor, table, changes, source=source)
        else:
            _check_shape(table, changes, repair=repair)
    columns = _published_columns(actual, source, table)
    layout = _layout(columns, source)
    same_columns = progress.layout == layout
    if fits and same_columns and not full and progress.is_at(source, built):
        return None
    follows = not full and same_columns and progress.precedes(source, built)
    if follows:
        copy_rows(cursor, source, columns, since=progress.build_id, until=built.build_id)
    else:
        copy_rows(cursor, source, columns)
    inserted, updated = _upsert(cursor, table, columns)
    gone = 0
    expected = count_rows(source)
    if not follows or progress.rows + inserted != expected:
        if follows:
            copy_rows(cursor, source, columns)
        gone = _delete_others(cursor, table)
    if wanted is not None:
        _execute(cursor, table, list_not_null(table, actual=actual, wanted=wanted))
        actual = _need_shape(cursor, table)
    shape = _shape_digest(table, actual)
    write_progress(cursor, table, Progress.of(source, built, rows=expected, layout=layout, shape=shape))
    return Published(table, built.changed_in, rows=inserted + updated, gone=gone, seconds=time.monotonic() - started)


def _check_shape(table: PostgresTable, changes: Sequence[SchemaChange], *, repair: str) -> None:
    """Raise a PublishError if the columns, types or key differ from the DDL. Extra columns in Postgres are allowed."""
    needed = [change for change in changes if change.kind != "extra"]
    if needed:
        raise PublishError(
            needed[0].problem,
            where=f"table {table.name} in Postgres",
            next_step=f"Nothing was published. Change the DDL, or repair the table: {repair}\n"
            f"Or run: {'; '.join(change.statement for change in needed)};",
        )


def _repair(cursor: psycopg.Cursor, table: PostgresTable, changes: Sequence[SchemaChange], *, source: Table) -> TableShape:
    """Change the table to its DDL and return its new shape.

    Drops a column that is not in the DDL only if the lake has it too. The others belong to the user and stay.
    """
    in_lake = {field.name for field in source.schema().fields}
    if any(change.kind in ("type", "key") for change in changes):
        # Old values may not fit the new type or key. This transaction publishes all rows again.
        cursor.execute(sql.SQL("DELETE FROM {}").format(sql.Identifier(table.name)))
    _apply(cursor, table, [change for change in changes if change.kind != "extra" or change.column in in_lake])
    return _need_shape(cursor, table)


def _apply(cursor: psycopg.Cursor, table: PostgresTable, changes: Iterable[SchemaChange]) -> None:
    _execute(cursor, table, [change.statement for change in changes])


def _execute(cursor: psycopg.Cursor, table: PostgresTable, statements: Sequence[str]) -> None:
    for statement in statements:
        try:
            cursor.execute(statement.encode())
        except psycopg.errors.InsufficientPrivilege as error:
            raise PublishError(
                f"Postgres rejected the change of the table: {_first_line(error)}",
                where=f"table {table.name} in Postgres",
                next_step=f"Nothing was published. Run as the table's owner: {'; '.join(statements)};",
            ) from error
        except psycopg.errors.DependentObjectsStillExist as error:
            raise PublishError(
                f"Postgres rejected the change of the table: {_first_line(error)}",
                where=f"table {table.name} in Postgres",
                next_step=f"Nothing was published. Drop what depends on it, then run: {statement};",
            ) from error


def _need_shape(cursor: psycopg.Cursor, table: PostgresTable) -> TableShape:
    shape = read_shape(cursor, f'"{table.name}"')
    if shape is None:  # dropped since it was prepared
        raise PublishError("the table was just dropped", where=f"table {table.name} in Postgres", next_step="Publish again.")
    return shape


def _shape_digest(table: PostgresTable, actual: TableShape) -> str:
    """Return a digest of the DDL and of the table in Postgres."""
    return hashlib.sha256(f"{table.ddl}\n{actual.digest()}".encode()).hexdigest()


def _layout(columns: Sequence[PostgresColumn], source: Table) -> str:
    """Return the mapping of the lake's columns to the columns and types of Postgres, as JSON."""
    schema = source.schema()
    return json.dumps([[column.name, column.type, schema.find_field(column.name).field_id] for column in columns])


def _published_columns(actual: TableShape, source: Table, table: PostgresTable) -> tuple[PostgresColumn, ...]:
    """Return the columns that both have. Raises a PublishError for a column without default that only Postgres has."""
    in_lake = set(shown_columns(source))
    for column in actual.columns:
        if column.name not in in_lake and not column.fills_itself:
            raise PublishError(
                f'{table.source} has no column "{column.name}"',
                where=f"table {table.name} in Postgres",
                next_step=f"Columns are: {', '.join(sorted(in_lake - added_columns(source)))}. Fix the DDL, give the column a"
                f" default, or drop it: ALTER TABLE {quote(table.name)} DROP COLUMN {quote(column.name)};",
            )
    return tuple(column for column in actual.columns if column.name in in_lake and not column.generated)


def _upsert(cursor: psycopg.Cursor, table: PostgresTable, columns: Sequence[PostgresColumn]) -> tuple[int, int]:
    """Upsert the copied rows; return how many were new and how many changed. Columns only in Postgres get their default."""
    values = [column for column in columns if column.name not in table.primary_key]
    published = [column.name for column in columns]
    own = [name for name in table.columns if name not in published]
    sets = [sql.SQL("{0} = excluded.{0}").format(sql.Identifier(column.name)) for column in values]
    sets += [sql.SQL("{} = DEFAULT").format(sql.Identifier(name)) for name in own]
    change = sql.SQL("UPDATE SET {} WHERE ({}) IS DISTINCT FROM ({})").format(
        sql.SQL(", ").join(sets),
        sql.SQL(", ").join(comparable("old", column.name, types={column.type}) for column in values),
        sql.SQL(", ").join(comparable("excluded", column.name, types={column.type}) for column in values),
    )
    statement = sql.SQL(
        "WITH done AS (INSERT INTO {target} AS old ({names}) SELECT {names} FROM {incoming}"
        " ON CONFLICT ({key}) DO {what} RETURNING (xmax = 0) AS is_new)"
        " SELECT count(*) FILTER (WHERE is_new), count(*) FILTER (WHERE NOT is_new) FROM done"
    ).format(
        target=sql.Identifier(table.name),
        names=names(published),
        incoming=INCOMING,
        key=names(table.primary_key),
        what=change if values else sql.SQL("NOTHING"),
    )
    counts = cursor.execute(statement).fetchone()
    assert counts is not None
    return int(counts[0]), int(counts[1])


def _delete_others(cursor: psycopg.Cursor, table: PostgresTable) -> int:
    """Delete the rows whose key is not among the copied rows; return how many."""
    same = sql.SQL(" AND ").join(sql.SQL("new.{0} = old.{0}").format(sql.Identifier(name)) for name in table.primary_key)
    statement = sql.SQL("DELETE FROM {} AS old WHERE NOT EXISTS (SELECT FROM {} AS new WHERE {})")
    cursor.execute(statement.format(sql.Identifier(table.name), INCOMING, same))
    return cursor.rowcount


def _first_line(error: psycopg.Error) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
