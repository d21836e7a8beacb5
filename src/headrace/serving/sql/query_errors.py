"""Translate DuckDB's errors about a query: what is wrong, where in the query, and what to do."""

from __future__ import annotations

import re

import duckdb

from headrace.errors import BadQueryError, QueryError
from headrace.serving.sql.query_worker import ASK_FOR_LESS, TOO_MUCH_MEMORY
from headrace.serving.sql.question import BEGINNINGS
from headrace.serving.sql.sql_policy import NAME_ONE, ONLY_TABLES

_KIND = re.compile(r"^[A-Z][A-Za-z ]* Error: ")
_PLACE = re.compile(r"^LINE (?P<line>\d+): (?P<cut>\.\.\.)?.*\n(?P<indent> *)\^", re.MULTILINE)
_CLOSE = re.compile(r'^Candidate bindings: .*?(?P<names>".*)$')
_END = "syntax error at end of input"
_OF_THE_QUERY = (duckdb.ParserException, duckdb.BinderException, duckdb.CatalogException, duckdb.PermissionException)
"""Errors that DuckDB raises before it reads a row: the query is wrong for any content of the tables."""


def explain(error: duckdb.Error, sql: str, *, asked: str) -> QueryError:
    """Return a QueryError for DuckDB's error about `sql`, which is the user's query `asked` with added quotes."""
    message = _KIND.sub("", str(error).strip())
    where, column = _find_place(message, sql=sql, asked=asked)
    lines = [line for line in message[: message.find("\nLINE ")].splitlines() if line.strip()] if "\nLINE " in message else []
    first, *hints = lines or [line for line in message.splitlines() if line.strip()] or ["DuckDB gave no reason"]
    what, _, more = first.partition(". ")
    hints = [more, *hints] if more else hints
    if what == _END:
        return BadQueryError("the query ends too early", where=_end_of(asked), next_step="Write the rest of it.")
    if isinstance(error, duckdb.PermissionException):
        what, hints = ONLY_TABLES, [NAME_ONE]
    elif isinstance(error, duckdb.OutOfMemoryException):
        what, hints = TOO_MUCH_MEMORY, [ASK_FOR_LESS]
    elif what.endswith("FROM clause is missing"):
        hints = ["Write FROM and the name of a table."]
    elif isinstance(error, duckdb.ParserException) and column == 1:
        hints = [f"Begin with {BEGINNINGS}."]
    kind = BadQueryError if isinstance(error, _OF_THE_QUERY) else QueryError
    return kind(_plain_sentence(what), where=where, next_step=_next_step(hints))


def _find_place(message: str, *, sql: str, asked: str) -> tuple[str, int | None]:
    """Return the position in `asked` that DuckDB points to; without a column if DuckDB shows only a part of the line."""
    place = _PLACE.search(message)
    if place is None:
        return "query", None
    if place["cut"]:
        return f"query:{place['line']}", None
    before = sql.split("\n")[int(place["line"]) - 1][: len(place["indent"]) - len(f"LINE {place['line']}: ")]
    line, column = asked.split("\n")[int(place["line"]) - 1], 1
    for sign in before:
        column += line[column - 1 : column] == sign  # an added quote has no position in the user's query
    return f"query:{place['line']}:{column}", column


def _end_of(sql: str) -> str:
    lines = sql.rstrip().splitlines() or [""]
    return f"query:{len(lines)}:{len(lines[-1]) + 1}"


def _plain_sentence(what: str) -> str:
    """Return a sentence without its final punctuation, in lower case unless its first word is a name."""
    plain = what.strip().rstrip("!.")
    return plain[0].lower() + plain[1:] if plain[1:2].islower() else plain


def _next_step(hints: list[str]) -> str:
    sentences = []
    for hint in hints:
        close = _CLOSE.match(hint)
        if close:
            names = re.findall(r'"([^"]+)"', close["names"])
            sentences.append(f'Did you mean "{names[0]}"?' if len(names) == 1 else f"Similar names are: {', '.join(names)}.")
        elif not hint.startswith("\t"):
            sentences.append(hint.strip().rstrip(".?") + ("?" if hint.strip().endswith("?") else "."))
    return " ".join(sentences) or "Fix the query at this position."
