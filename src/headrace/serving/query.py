"""SQL on the lake: DuckDB reads the Iceberg tables as the catalog has them now, deletes respected."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from threading import Timer

import duckdb
import pyarrow as pa
import sqlglot
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from sqlglot import TokenType, exp
from sqlglot.errors import SqlglotError

from headrace.errors import QueryError
from headrace.serving.query_errors import explain
from headrace.serving.question import named_tables, parse_select, refusal
from headrace.tables.away import find_away
from headrace.tables.catalog import list_tables
from headrace.tables.duck import open_duckdb, quote_name, quote_text
from headrace.tables.storage import Storage

ReadTable = Callable[[duckdb.DuckDBPyConnection, Table], str]
"""Gives back what DuckDB reads a table from, as it stands after FROM."""


@dataclass(frozen=True)
class Bound:
    """How many rows of a result are read, for how many seconds a query may run, and how much memory it may take."""

    rows: int
    seconds: float
    memory: str


def scan_iceberg(connection: duckdb.DuckDBPyConnection, table: Table) -> str:
    """Gives back what DuckDB reads a table from by itself: the metadata file that the catalog names."""
    return f"iceberg_scan({quote_text(table.metadata_location)})"


def run_query(catalog: Catalog, sql: str, *, bound: Bound | None = None, read: ReadTable = scan_iceberg) -> pa.Table:
    """Gives back the result of one SELECT. A table is named with its namespaces; nothing in the lake can be changed."""
    with open_duckdb(reads_iceberg=read is scan_iceberg, storage=Storage.of(catalog.properties)) as connection:
        quoted = _quote_default(sql)
        known = list_tables(catalog)
        statement = _parse(connection, sql, quoted, known)
        if bound:
            connection.execute(f"SET memory_limit = {quote_text(bound.memory)}")
        tables = named_tables(statement, known, own=("information_schema",))
        _fence_in(connection, _make_views(connection, catalog, tables, read=read))
        try:
            return _run(connection, quoted, bound)
        except duckdb.InterruptException as error:
            limit = f"{bound.seconds:g} seconds" if bound else "its time"
            raise QueryError(
                f"the query ran for longer than {limit}",
                next_step="Ask for less. In a terminal, headrace query waits for any answer.",
            ) from error
        except duckdb.Error as error:
            raise find_away(error) or explain(error, quoted, asked=sql) from error


def _run(connection: duckdb.DuckDBPyConnection, sql: str, bound: Bound | None) -> pa.Table:
    if bound is None:
        return connection.execute(sql).to_arrow_table()
    clock = Timer(bound.seconds, connection.interrupt)
    clock.start()
    try:
        reader = connection.execute(sql).to_arrow_reader(bound.rows)
        batches: list[pa.RecordBatch] = []
        while sum(batch.num_rows for batch in batches) < bound.rows:
            try:
                batches.append(reader.read_next_batch())
            except StopIteration:
                break
        return pa.Table.from_batches(batches, reader.schema).slice(0, bound.rows)
    finally:
        clock.cancel()


def _parse(connection: duckdb.DuckDBPyConnection, sql: str, quoted: str, known: Sequence[str]) -> exp.Expr:
    """Gives back the one SELECT; anything else is a QueryError. DuckDB, which will run it, says first what is no SQL."""
    try:
        kinds = [each.type.name for each in connection.extract_statements(quoted)]
    except duckdb.Error as error:
        raise explain(error, quoted, asked=sql) from error
    if len(kinds) == 1 and kinds[0] != "SELECT":
        raise refusal(kinds[0], known)
    return parse_select(sql, dialect="duckdb", known=known)


def _quote_default(sql: str) -> str:
    """Gives back the query with the namespace `default` in quotes, which is a word of DuckDB's own."""
    try:
        tokens = sqlglot.tokenize(sql, read="duckdb")
    except SqlglotError:
        return sql  # it is no SQL, which DuckDB says better
    for token, after in reversed(list(pairwise(tokens))):
        if token.token_type == TokenType.DEFAULT and after.token_type == TokenType.DOT:
            sql = f'{sql[: token.start]}"{token.text}"{sql[token.end + 1 :]}'
    return sql


def _make_views(
    connection: duckdb.DuckDBPyConnection, catalog: Catalog, tables: Sequence[str], *, read: ReadTable
) -> list[str]:
    """Makes a view of each table that the query names; gives back the folders that they live in.

    Names come from the catalog, never from the query. DuckDB reads three words as database, schema and table, so a namespace
    that others are in is a database in memory; tables that are in that namespace itself are in its main schema, which DuckDB
    finds by two words.
    """
    folders: list[str] = []
    named = {name: tuple(name.split(".")) for name in tables}
    nested = {parts[0] for parts in named.values() if len(parts) == 3}
    for outer in nested:
        connection.execute(f"ATTACH ':memory:' AS {quote_name(outer)}")
    for name, parts in named.items():
        loaded = catalog.load_table(name)
        folders += [loaded.location(), loaded.properties.get("write.data.path", loaded.location())]
        view = ".".join(map(quote_name, parts))
        if parts[0] not in nested or len(parts) == 3:
            connection.execute(f"CREATE SCHEMA IF NOT EXISTS {view.rpartition('.')[0]}")
        connection.execute(f"CREATE OR REPLACE VIEW {view} AS SELECT * FROM {read(connection, loaded)}")
    return folders


def _fence_in(connection: duckdb.DuckDBPyConnection, folders: list[str]) -> None:
    """Lets the query read these folders and nothing else of the machine or the network."""
    plain = [folder.removeprefix("file://") for folder in folders]
    allowed = ", ".join(quote_text(folder) for folder in (*folders, *plain))
    connection.execute(f"SET allowed_directories = [{allowed}]")
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")
