"""Copy rows of a layer table into a temporary table of Postgres, for publishing and comparing."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

import psycopg
from psycopg import sql
from pyiceberg.table import ALWAYS_TRUE, Table

from headrace.serving.publish.postgres_table import PostgresColumn, names
from headrace.spec.model.layers import BUILD_ID

INCOMING = sql.Identifier("headrace_incoming")


def copy_rows(
    cursor: psycopg.Cursor,
    source: Table,
    columns: Sequence[PostgresColumn],
    *,
    since: int | None = None,
    until: int = 0,
) -> int:
    """Fill the temporary table with the rows of the builds after `since` up to `until`, or all rows; return how many.

    The temporary table lives until the transaction ends. Rows are copied in batches, so memory does not grow with the table.
    """
    cursor.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(INCOMING))
    # Postgres itself reported these types, for the columns of the table or of its DDL.
    typed = (sql.SQL("{} {}").format(sql.Identifier(column.name), sql.SQL(column.type)) for column in columns)
    created = sql.SQL("CREATE TEMPORARY TABLE {} ({}) ON COMMIT DROP").format(INCOMING, sql.SQL(", ").join(typed))
    cursor.execute(created)
    chosen = [column.name for column in columns]
    count = 0
    with cursor.copy(sql.SQL("COPY {} ({}) FROM STDIN").format(INCOMING, names(chosen))) as copy:
        for row in _rows(source, chosen, since=since, until=until):
            copy.write_row(row)
            count += 1
    cursor.execute(sql.SQL("ANALYZE {}").format(INCOMING))
    return count


def _rows(source: Table, columns: Sequence[str], *, since: int | None, until: int) -> Iterator[tuple[object, ...]]:
    chosen = ALWAYS_TRUE if since is None else f"{BUILD_ID} > {since} AND {BUILD_ID} <= {until}"
    for batch in source.scan(row_filter=chosen, selected_fields=tuple(columns)).to_arrow_batch_reader():
        for row in batch.to_pylist():
            yield tuple(_as_value(row[name]) for name in columns)


def _as_value(value: object) -> object:
    return json.dumps(value, default=str) if isinstance(value, (dict, list)) else value
