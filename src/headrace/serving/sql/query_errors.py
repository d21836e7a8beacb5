"""DuckDB's complaints about a query in our words: what, where in the query, and what to do."""

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
"""What DuckDB raises before it reads a row: the query is wrong, whatever the tables hold."""


def explain(error: duckdb.Error, sql: str, *, asked: str) -> QueryError:
    """Return the error that a person can read of what DuckDB says of `sql`: `asked`, with more quotes in it."""
    said = _KIND.sub("", str(error).strip())
    where, column = _find_place(said, sql=sql, asked=asked)
    lines = [line for line in said[: said.find("\nLINE ")].splitlines() if line.strip()] if "\nLINE " in said else []
    first, *hints = lines or [line for line in said.splitlines() if line.strip()] or ["DuckDB gave no reason"]
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
    return kind(_as_ours(what), where=where, next_step=_next_step(hints))


def _find_place(said: str, *, sql: str, asked: str) -> tuple[str, int | None]:
    """Return where in what was asked DuckDB points to; of a long line it shows a part, and the column is not known."""
    found = _PLACE.search(said)
    if found is None:
        return "query", None
    if found["cut"]:
        return f"query:{found['line']}", None
    before = sql.split("\n")[int(found["line"]) - 1][: len(found["indent"]) - len(f"LINE {found['line']}: ")]
    line, column = asked.split("\n")[int(found["line"]) - 1], 1
    for sign in before:
        column += line[column - 1 : column] == sign  # a quote that was added has no place in what was asked
    return f"query:{found['line']}:{column}", column


def _end_of(sql: str) -> str:
    lines = sql.rstrip().splitlines() or [""]
    return f"query:{len(lines)}:{len(lines[-1]) + 1}"


def _as_ours(what: str) -> str:
    """Return a sentence without its full stop or call, which begins small unless its first word is a name."""
    plain = what.strip().rstrip("!.")
    return plain[0].lower() + plain[1:] if plain[1:2].islower() else plain


def _next_step(hints: list[str]) -> str:
    told = []
    for hint in hints:
        close = _CLOSE.match(hint)
        if close:
            names = re.findall(r'"([^"]+)"', close["names"])
            told.append(f'Did you mean "{names[0]}"?' if len(names) == 1 else f"Close to it are: {', '.join(names)}.")
        elif not hint.startswith("\t"):
            told.append(hint.strip().rstrip(".?") + ("?" if hint.strip().endswith("?") else "."))
    return " ".join(told) or "Fix the query there."
