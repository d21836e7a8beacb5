"""Run one SELECT in a sandboxed DuckDB: plan the query, create views of its tables, and return Arrow.

It uses no catalog, so it can run in a process without the catalog's credentials.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from threading import Timer

import duckdb
import pyarrow as pa
import sqlglot
from sqlglot import TokenType, exp
from sqlglot.errors import SqlglotError

from headrace.errors import QueryError
from headrace.iceberg.catalog.outages import find_outage
from headrace.iceberg.rows.duck import open_duckdb, quote_name, quote_text
from headrace.serving.sql.query_errors import explain
from headrace.serving.sql.question import named_tables, parse_select, refusal

_BEGINNING = re.compile(r"\(*\s*(SELECT|WITH|FROM|DESCRIBE|SUMMARIZE|VALUES)\b", re.IGNORECASE)


@dataclass(frozen=True)
class PlannedQuery:
    """A query that the policy accepts: the original text (`asked`), the text for DuckDB, and its tables."""

    asked: str
    sql: str
    tables: tuple[str, ...]


@dataclass(frozen=True)
class SourceTable:
    """The FROM expression with which DuckDB reads a table, and the folders of its files."""

    relation: str
    folders: tuple[str, ...]


@dataclass(frozen=True)
class Bound:
    """The limits of a query: rows of the result, seconds, memory and disk space."""

    rows: int
    seconds: float
    memory_bytes: int
    spill_folder: Path
    spill_bytes: int


def plan_query(sql: str, known: Sequence[str]) -> PlannedQuery:
    """Return the planned query. Raises a QueryError unless it is one statement that reads known tables."""
    quoted = _quote_default(sql)
    statement = _parse(sql, quoted, known)
    return PlannedQuery(sql, quoted, named_tables(statement, known, own=("information_schema",)))


def execute(
    connection: duckdb.DuckDBPyConnection,
    planned: PlannedQuery,
    sources: Mapping[str, SourceTable],
    *,
    bound: Bound | None = None,
) -> pa.Table:
    """Return the result of a query, which can read only the folders of these tables."""
    if bound:
        connection.execute(f"SET memory_limit = {quote_text(f'{bound.memory_bytes}B')}")
        connection.execute(f"SET temp_directory = {quote_text(str(bound.spill_folder))}")
        connection.execute(f"SET max_temp_directory_size = {quote_text(f'{bound.spill_bytes}B')}")
    with _explained(planned, bound):
        _make_views(connection, sources)
        _sandbox(connection, [folder for source in sources.values() for folder in source.folders])
        _check_single_select(connection, planned.sql)
        return _run(connection, planned.sql, bound)


@contextmanager
def _explained(planned: PlannedQuery, bound: Bound | None) -> Iterator[None]:
    try:
        yield
    except duckdb.InterruptException as error:
        limit = f"{bound.seconds:g} seconds" if bound else "its time"
        raise QueryError(
            f"the query ran for longer than {limit}",
            next_step="Query less data, or run it in a terminal with headrace query, which has no limit.",
        ) from error
    except duckdb.Error as error:
        raise find_outage(error) or explain(error, planned.sql, asked=planned.asked) from error


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


def _parse(sql: str, quoted: str, known: Sequence[str]) -> exp.Expr:
    """Return the statement. Raises a QueryError unless it is one statement that only reads.

    If sqlglot can't parse a text that can only be a SELECT, a fully sandboxed DuckDB provides the better error message.
    """
    try:
        return parse_select(sql, dialect="duckdb", known=known)
    except QueryError as error:
        if isinstance(error.__cause__, SqlglotError) and _begins_reading(sql):
            _explain_syntax(sql, quoted)
        raise


def _begins_reading(sql: str) -> bool:
    """Return whether a text can only be one reading statement, in any tokenization."""
    only = sql.strip().rstrip(";")
    return bool(_BEGINNING.match(only)) and ";" not in only


def _explain_syntax(sql: str, quoted: str) -> None:
    with open_duckdb(reads_iceberg=False) as connection:
        _sandbox(connection, [])
        try:
            connection.extract_statements(quoted)
        except duckdb.Error as error:
            raise explain(error, quoted, asked=sql) from error


def _check_single_select(connection: duckdb.DuckDBPyConnection, quoted: str) -> None:
    """Raise a QueryError if DuckDB parses the text differently from sqlglot."""
    kinds = [statement.type.name for statement in connection.extract_statements(quoted)]
    if kinds != ["SELECT"]:
        raise refusal(kinds[0] if len(kinds) == 1 else f"{len(kinds)} statements", ())


def _quote_default(sql: str) -> str:
    """Return the query with the namespace `default` quoted, because it is a keyword of DuckDB."""
    try:
        tokens = sqlglot.tokenize(sql, read="duckdb")
    except SqlglotError:
        return sql  # DuckDB has the better message for a text that is not SQL
    for token, after in reversed(list(pairwise(tokens))):
        if token.token_type == TokenType.DEFAULT and after.token_type == TokenType.DOT:
            sql = f'{sql[: token.start]}"{token.text}"{sql[token.end + 1 :]}'
    return sql


def _make_views(connection: duckdb.DuckDBPyConnection, sources: Mapping[str, SourceTable]) -> None:
    """Create a view for each table of the query.

    Names come from the catalog, never from the query. DuckDB reads three parts of a name as database, schema and table. So a
    namespace with child namespaces becomes an in-memory database, and its own tables are in that database's main schema, which
    DuckDB resolves with two parts.
    """
    named = {name: tuple(name.split(".")) for name in sources}
    nested = {parts[0] for parts in named.values() if len(parts) == 3}
    for outer in nested:
        connection.execute(f"ATTACH ':memory:' AS {quote_name(outer)}")
    for name, parts in named.items():
        view = ".".join(map(quote_name, parts))
        if parts[0] not in nested or len(parts) == 3:
            connection.execute(f"CREATE SCHEMA IF NOT EXISTS {view.rpartition('.')[0]}")
        connection.execute(f"CREATE OR REPLACE VIEW {view} AS SELECT * FROM {sources[name].relation}")


def _sandbox(connection: duckdb.DuckDBPyConnection, folders: list[str]) -> None:
    """Restrict the connection to these folders, without access to other files or the network."""
    plain = [folder.removeprefix("file://") for folder in folders]
    allowed = ", ".join(quote_text(folder) for folder in (*folders, *plain))
    connection.execute(f"SET allowed_directories = [{allowed}]")
    connection.execute("SET python_enable_replacements = false")  # Python variables must not be readable as tables
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")
