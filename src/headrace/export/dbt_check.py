"""Check every model before it is written: DuckDB binds it to empty tables with the columns of its inputs.

The column types of Python tables, entities and stage tables are unknown until Headrace builds them. Models that read these
tables are only parsed, and their functions looked up.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import duckdb

from headrace.errors import SpecError
from headrace.export.dbt_models import condition_sql, model_sql, translated
from headrace.export.duckdb_sql import refuse
from headrace.iceberg.schema.columns import iceberg_schema
from headrace.spec.model.columns import landed_columns
from headrace.spec.model.layers import LayerTable
from headrace.spec.model.pipeline import Pipeline, TableName

if TYPE_CHECKING:
    from sqlglot import exp

_CLOSED: dict[str, str | bool | int | float | list[str]] = {
    "enable_external_access": "false",
    "autoinstall_known_extensions": "false",
}
"""Queries are bound to empty tables, so DuckDB never needs to open a file or a connection."""
_ESCAPED = re.compile(r"\{\{ '(\{[{%#])' \}\}")
_NAMED = re.compile(r"with name \"?(\w+)\"? does not exist|column \"(\w+)\"|name and argument types '(\w+)\(", re.IGNORECASE)
_SYNTAX = frozenset(
    (
        *("cast", "try_cast", "coalesce", "extract", "nullif", "if", "unnest", "row", "map", "columns", "exists", "grouping"),
        *("position", "overlay", "trim", "substring", "list", "array", "interval", "date", "struct_pack", "case", "lambda"),
    )
)
"""Functions in DuckDB's grammar that are missing from its list of functions."""


def find_unsupported(
    pipeline: Pipeline, models: Sequence[LayerTable], columns: Mapping[TableName, Sequence[str] | None]
) -> dict[TableName, SpecError]:
    """Return an error with file and line for each table whose query DuckDB can't run.

    `models` are in dependency order. `columns` are those of each table, as for `model_sql`.
    """
    refused: dict[TableName, SpecError] = {}
    with duckdb.connect(config=_CLOSED) as connection:
        functions = {row[0] for row in connection.execute("SELECT DISTINCT function_name FROM duckdb_functions()").fetchall()}
        for namespace in {name.flat_namespace for name in (*_streams(pipeline), *(table.table for table in models))}:
            connection.execute(f'CREATE SCHEMA IF NOT EXISTS "{namespace}"')
        typed = _create_streams(connection, pipeline)
        for table in models:
            references = {name: _quoted(name) for name in table.inputs}
            try:
                query = model_sql(table, columns=columns[table.table], references=references, dialect="duckdb")
                text = _ESCAPED.sub(r"\1", query)
                if set(table.inputs) <= typed:
                    _create(connection, table, text)
                    typed.add(table.table)
                else:
                    _parse(connection, table, text)
                    _check_functions(table, functions)
            except SpecError as error:
                refused[table.table] = error
    return refused


def _streams(pipeline: Pipeline) -> tuple[TableName, ...]:
    return tuple(stream.table for stream in pipeline.streams)


def _create_streams(connection: duckdb.DuckDBPyConnection, pipeline: Pipeline) -> set[TableName]:
    """Create the raw tables whose columns are known without landed data, and return their names."""
    known = [stream for stream in pipeline.streams if stream.format != "debezium"]
    for stream in known:
        connection.register("landed", iceberg_schema(landed_columns(stream)).as_arrow().empty_table())
        connection.execute(f"CREATE TABLE {_quoted(stream.table)} AS FROM landed")
        connection.unregister("landed")
    return {stream.table for stream in known}


def _create(connection: duckdb.DuckDBPyConnection, table: LayerTable, text: str) -> None:
    """Create the table of a model, and run the conditions of its tests."""
    try:
        connection.execute(f"CREATE TABLE {_quoted(table.table)} AS {text}")
    except duckdb.Error as error:
        raise _refuse(table, error) from None
    for expectation in table.expectations:
        if expectation.on_failure in ("drop", "quarantine") or any(name in expectation.that for name in table.except_columns):
            continue  # in the model itself, or not tested
        condition = _ESCAPED.sub(r"\1", condition_sql(table, expectation.that, line=expectation.line, dialect="duckdb"))
        try:
            connection.execute(f"SELECT * FROM {_quoted(table.table)} WHERE NOT coalesce({condition}, false)")
        except duckdb.Error as error:
            what = str(error).splitlines()[0]
            raise table.error(
                f"DuckDB can't run this condition: {what}",
                at=expectation.line,
                fix="Export with --dialect spark, or rewrite the condition",
            ) from None


def _parse(connection: duckdb.DuckDBPyConnection, table: LayerTable, text: str) -> None:
    try:
        connection.extract_statements(text)
    except duckdb.Error as error:
        raise _refuse(table, error) from None


def _check_functions(table: LayerTable, functions: set[str]) -> None:
    from sqlglot import exp

    for node in translated(table).find_all(exp.Func):
        name = _function_name(node)
        if name and name not in functions and name not in _SYNTAX:
            word = _function_name(node, dialect="spark") or name
            raise refuse(table, f"it has no function {word}", word=word)


def _function_name(node: exp.Expr, *, dialect: str = "duckdb") -> str | None:
    match = re.match(r"([A-Za-z_]\w*)\(", node.sql(dialect=dialect))
    return match[1].lower() if match else None


def _refuse(table: LayerTable, error: duckdb.Error) -> SpecError:
    what = str(error).splitlines()[0]
    named = _NAMED.search(what)
    return refuse(table, what, word=next((word for word in (named.groups() if named else ()) if word), ""))


def _quoted(name: TableName) -> str:
    """Return a table's quoted name in dbt: its schema is the namespace as one identifier."""
    return f'"{name.flat_namespace}"."{name.name}"'
