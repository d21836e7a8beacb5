"""The policy for queries in every engine: one statement that reads tables of the lake, and nothing else of the machine.

The rules are checked on sqlglot's syntax tree before an engine gets the text, because an engine may execute parts while it
parses, such as DuckDB with `PRAGMA import_database`. Table functions are allow-listed per dialect, because engines add new ones
that read files and URLs with every release. Scalar functions are too many to list, so the ones that read anything but their
arguments are deny-listed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import sqlglot
from sqlglot import Token, TokenType, exp

from headrace.errors import BadQueryError

ONLY_TABLES = "a query can read only tables of the lake"
NAME_ONE = "Name a table: namespace.table."

TABLE_FUNCTIONS: Mapping[str, frozenset[str]] = {
    "duckdb": frozenset({"generate_series", "json_each", "json_tree", "range", "unnest"}),
    "spark": frozenset(
        {
            "explode",
            "explode_outer",
            "generate_series",
            "inline",
            "inline_outer",
            "json_tuple",
            "posexplode",
            "posexplode_outer",
            "range",
            "stack",
            "variant_explode",
        }
    ),
    "trino": frozenset({"generate_series", "sequence", "unnest"}),
    "clickhouse": frozenset({"generate_series", "generateseries", "numbers", "numbers_mt", "zeros", "zeros_mt"}),
    "postgres": frozenset({"unnest"}),
}
"""The functions that generate rows from their arguments only. sqlglot names DuckDB's range and Trino's sequence
generate_series. The dialect of Polars is postgres."""

REFUSED_FUNCTIONS: Mapping[str, frozenset[str]] = {
    "duckdb": frozenset(
        {
            "current_setting",
            "currval",
            "getenv",
            "getvariable",
            "json_serialize_plan",
            "nextval",
            "pg_sleep",
            "sleep_ms",
            "write_log",
        }
    ),
    "spark": frozenset({"from_protobuf", "java_method", "reflect", "to_protobuf", "try_reflect"}),
    "trino": frozenset(),
    "clickhouse": frozenset(
        {
            "catboostevaluate",
            "executable",
            "file",
            "filesystemavailable",
            "filesystemcapacity",
            "filesystemunreserved",
            "getmacro",
            "getserversetting",
            "getsetting",
            "globalin",
            "globalnotin",
            "globalnotnullin",
            "globalnullin",
            "hascolumnintable",
            "joinget",
            "joingetornull",
            "notin",
            "notnullin",
            "nullin",
            "reversednsquery",
            "showcertificate",
            "sleep",
            "sleepeachrow",
        }
    ),
    "postgres": frozenset(),
}
"""Scalar functions that read files, settings, variables or other servers, call Java, or sleep. DuckDB's json_serialize_plan
plans any text as a query and returns the constants it computed. ClickHouse's notIn and similar functions accept a table."""
_REFUSED_PREFIXES: Mapping[str, tuple[str, ...]] = {"clickhouse": ("dictget", "ai")}

_READING = (exp.Query, exp.Describe, exp.Summarize)
_WRITING = (exp.DML, exp.Create, exp.Drop, exp.Alter, exp.Command, exp.Pragma, exp.Set, exp.Copy, exp.Attach, exp.Into)
_RELATIONS = (exp.Table, exp.Subquery, exp.Query, exp.Values, exp.Unnest, exp.Lateral)
_DOLLAR_QUOTE = re.compile(r"\$([A-Za-z_][A-Za-z0-9_]*)?\$")


def is_reading(statement: exp.Expr) -> bool:
    """Return whether a statement only reads, including its CTEs."""
    return isinstance(statement, _READING) and not any(isinstance(node, _WRITING) for node in statement.walk())


def check_quotes(sql: str, *, dialect: str) -> None:
    """Raise a BadQueryError if sqlglot and an engine may disagree on which text is a string, which could hide SQL.

    ClickHouse also accepts typographic quotes, and only ASCII outside of quotes. sqlglot accepts any text between dollar signs
    as the tag of a quote.
    """
    for token in sqlglot.tokenize(sql, read=dialect):
        if token.token_type == TokenType.HEREDOC_STRING:
            sign = "" if _DOLLAR_QUOTE.match(sql, token.start) else "$"
        else:
            is_free = dialect != "clickhouse" or _is_quoted(token)
            sign = "" if is_free else next((character for character in token.text if not character.isascii()), "")
        if sign:
            before = sql[: token.start].split("\n")
            raise BadQueryError(
                f"the character {sign} is not allowed outside of quotes",
                where=f"query:{len(before)}:{len(before[-1]) + 1}",
                next_step="Quote strings with ' and names with the engine's quotes.",
            )


def check_policy(statement: exp.Expr, *, sql: str, dialect: str) -> None:
    """Raise a BadQueryError with the position if a statement reads anything but tables, or changes the engine's settings."""
    for node in statement.walk():
        reason = _reason_to_refuse(node, dialect)
        if reason is not None:
            raise BadQueryError(reason, where=place_in(sql, node), next_step=NAME_ONE)


def place_in(sql: str, node: exp.Expr) -> str:
    """Return the start of a node in the query, as query:line:column."""
    starts = [int(part.meta["start"]) for part in node.walk() if "start" in part.meta]
    before = sql[: min(starts, default=0)].split("\n")
    return f"query:{len(before)}:{len(before[-1]) + 1}"


def _is_quoted(token: Token) -> bool:
    return token.token_type == TokenType.IDENTIFIER or token.token_type.name.endswith("STRING")


def _reason_to_refuse(node: exp.Expr, dialect: str) -> str | None:
    if isinstance(node, exp.QueryTransform):
        return "a query can't run programs"
    if isinstance(node, exp.Query) and (node.args.get("settings") or node.args.get("format")):
        return "a query can't change settings or the format of its result"
    if isinstance(node, (exp.Table, exp.Lateral)):
        return None if _is_readable(node.this, dialect, node) else ONLY_TABLES
    if isinstance(node, (exp.Describe, exp.Summarize)) and node.this is not None:
        return None if isinstance(node.this, _RELATIONS) else ONLY_TABLES  # DuckDB reads a string there as a file name
    if isinstance(node, (exp.From, exp.Join)):
        is_array = isinstance(node, exp.Join) and node.kind == "ARRAY"  # ClickHouse's ARRAY JOIN takes columns
        return None if is_array or isinstance(node.this, _RELATIONS) else ONLY_TABLES
    if isinstance(node, exp.In) and dialect == "clickhouse":
        # ClickHouse accepts a table or a table function here, other engines only a list.
        is_table = isinstance(node.args.get("field"), (exp.Column, exp.Anonymous))
        return ONLY_TABLES if is_table else None
    if isinstance(node, exp.Func):
        return ONLY_TABLES if _is_refused(_name_of(node), dialect) else None
    return None


def _is_readable(source: object, dialect: str, holder: exp.Expr) -> bool:
    """Return whether a query may read from this source: a named table, a subquery, or an allowed table function."""
    if isinstance(source, exp.Anonymous) and source.name.upper() == "TABLE" and len(source.expressions) == 1:
        source = source.expressions[0]  # Trino's TABLE(function(…))
    if isinstance(source, exp.Func):
        return _name_of(source) in TABLE_FUNCTIONS[dialect] and not holder.args.get("db")
    if source is None:
        return bool(holder.args.get("rows_from"))  # the tables in ROWS FROM (…) are checked separately
    return isinstance(source, (exp.Identifier, exp.Subquery, exp.Query))


def _is_refused(name: str, dialect: str) -> bool:
    return name in REFUSED_FUNCTIONS[dialect] or name.startswith(_REFUSED_PREFIXES.get(dialect, ()))


def _name_of(function: exp.Func) -> str:
    return (function.name if isinstance(function, exp.Anonymous) else function.sql_name()).lower()
