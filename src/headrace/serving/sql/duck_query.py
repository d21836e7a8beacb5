"""One SELECT in a DuckDB that is fenced in: from the text to the tables that it names, and from their files to Arrow.

Nothing here knows a catalog, so that a process without its credentials can do it.
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
from headrace.iceberg.catalog.outages import find_away
from headrace.iceberg.rows.duck import open_duckdb, quote_name, quote_text
from headrace.serving.sql.query_errors import explain
from headrace.serving.sql.question import named_tables, parse_select, refusal

_BEGINNING = re.compile(r"\(*\s*(SELECT|WITH|FROM|DESCRIBE|SUMMARIZE|VALUES)\b", re.IGNORECASE)


@dataclass(frozen=True)
class PlannedQuery:
    """A query that the policy accepts: as it was asked, as DuckDB is given it, and the tables that it names."""

    asked: str
    sql: str
    tables: tuple[str, ...]


@dataclass(frozen=True)
class SourceTable:
    """What DuckDB reads a table from, as it stands after FROM, and the folders of its files."""

    relation: str
    folders: tuple[str, ...]


@dataclass(frozen=True)
class Bound:
    """How many rows of a result are read, for how many seconds a query may run, and how much memory and disk it may take."""

    rows: int
    seconds: float
    memory_bytes: int
    spill_folder: Path
    spill_bytes: int


def plan_query(sql: str, known: Sequence[str]) -> PlannedQuery:
    """Return the query if it is one statement that reads known tables; anything else is a QueryError."""
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
    """Return the result of a query, which can read the folders of these tables and nothing else."""
    if bound:
        connection.execute(f"SET memory_limit = {quote_text(f'{bound.memory_bytes}B')}")
        connection.execute(f"SET temp_directory = {quote_text(str(bound.spill_folder))}")
        connection.execute(f"SET max_temp_directory_size = {quote_text(f'{bound.spill_bytes}B')}")
    with _explained(planned, bound):
        _make_views(connection, sources)
        _fence_in(connection, [folder for source in sources.values() for folder in source.folders])
        _need_one_select(connection, planned.sql)
        return _run(connection, planned.sql, bound)


@contextmanager
def _explained(planned: PlannedQuery, bound: Bound | None) -> Iterator[None]:
    try:
        yield
    except duckdb.InterruptException as error:
        limit = f"{bound.seconds:g} seconds" if bound else "its time"
        raise QueryError(
            f"the query ran for longer than {limit}",
            next_step="Ask for less. In a terminal, headrace query waits for any answer.",
        ) from error
    except duckdb.Error as error:
        raise find_away(error) or explain(error, planned.sql, asked=planned.asked) from error


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
    """Return the one statement that reads; anything else is a QueryError.

    Where sqlglot can't read what can only be a SELECT, a DuckDB that is fenced from everything says better what is wrong.
    """
    try:
        return parse_select(sql, dialect="duckdb", known=known)
    except QueryError as error:
        if isinstance(error.__cause__, SqlglotError) and _begins_reading(sql):
            _explain_syntax(sql, quoted)
        raise


def _begins_reading(sql: str) -> bool:
    """Return whether a text can only be one statement that reads, however it is tokenized."""
    only = sql.strip().rstrip(";")
    return bool(_BEGINNING.match(only)) and ";" not in only


def _explain_syntax(sql: str, quoted: str) -> None:
    with open_duckdb(reads_iceberg=False) as connection:
        _fence_in(connection, [])
        try:
            connection.extract_statements(quoted)
        except duckdb.Error as error:
            raise explain(error, quoted, asked=sql) from error


def _need_one_select(connection: duckdb.DuckDBPyConnection, quoted: str) -> None:
    """Raise a QueryError where DuckDB reads the text otherwise than sqlglot does."""
    kinds = [each.type.name for each in connection.extract_statements(quoted)]
    if kinds != ["SELECT"]:
        raise refusal(kinds[0] if len(kinds) == 1 else f"{len(kinds)} statements", ())


def _quote_default(sql: str) -> str:
    """Return the query with the namespace `default` in quotes, which is a word of DuckDB's own."""
    try:
        tokens = sqlglot.tokenize(sql, read="duckdb")
    except SqlglotError:
        return sql  # it is no SQL, which DuckDB says better
    for token, after in reversed(list(pairwise(tokens))):
        if token.token_type == TokenType.DEFAULT and after.token_type == TokenType.DOT:
            sql = f'{sql[: token.start]}"{token.text}"{sql[token.end + 1 :]}'
    return sql


def _make_views(connection: duckdb.DuckDBPyConnection, sources: Mapping[str, SourceTable]) -> None:
    """Create a view of each table that the query names.

    Names come from the catalog, never from the query. DuckDB reads three words as database, schema and table, so a namespace
    that others are in is a database in memory; tables that are in that namespace itself are in its main schema, which DuckDB
    finds by two words.
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


def _fence_in(connection: duckdb.DuckDBPyConnection, folders: list[str]) -> None:
    """Let the query read these folders and nothing else of the machine or the network."""
    plain = [folder.removeprefix("file://") for folder in folders]
    allowed = ", ".join(quote_text(folder) for folder in (*folders, *plain))
    connection.execute(f"SET allowed_directories = [{allowed}]")
    connection.execute("SET python_enable_replacements = false")  # names of variables of this program are no tables
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")
