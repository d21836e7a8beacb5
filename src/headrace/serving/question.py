"""What a query asks: one SELECT, and where it names tables of the lake. sqlglot reads it; the engine's dialect stays."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

import sqlglot
from sqlglot import exp
from sqlglot.errors import ParseError, SqlglotError

from headrace.errors import QueryError
from headrace.spec.problems import suggest

EXAMPLE = "SELECT count(*) FROM lineage.events"
ONLY_TABLES = "a query reads tables of the lake, and nothing else of this machine"
NAME_ONE = "Name a table: namespace.table."
_MAKERS = ("GENERATE_SERIES", "UNNEST", "json_each", "json_tree", "numbers", "range")
"""What a query may read rows from beside tables; sqlglot calls DuckDB's range(…) the first. Other functions of the engines read
files and addresses, or tell the keys to the object store."""


@dataclass(frozen=True)
class Mention:
    """A place in a query that names a table of the lake: as one to read, or before one of its columns.

    `start` and `end` are the first sign of the name and the one behind its last. `alias` is what the query calls it.
    """

    table: str
    start: int
    end: int
    is_column: bool = False
    alias: str = ""

    @property
    def short(self) -> str:
        """What engines call a table that has no alias."""
        return self.alias or self.table.rpartition(".")[2]


@dataclass(frozen=True)
class Question:
    """One SELECT as it was asked, and all its mentions of tables."""

    sql: str
    mentions: tuple[Mention, ...]

    @property
    def tables(self) -> tuple[str, ...]:
        """The tables to read, each once."""
        return tuple(dict.fromkeys(each.table for each in self.mentions if not each.is_column))

    def rename(self, name: Callable[[Mention], str]) -> str:
        """Gives back the query with other names in the places of these; everything else stays as it was asked."""
        sql = self.sql
        for each in sorted(self.mentions, key=lambda mention: mention.start, reverse=True):
            sql = sql[: each.start] + name(each) + sql[each.end :]
        return sql


def read_question(sql: str, *, dialect: str, known: Sequence[str]) -> Question:
    """Gives back what a query in an engine's SQL asks; what is no SELECT of tables that are known is a QueryError."""
    statement = parse_select(sql, dialect=dialect, known=known)
    tables = tuple(_find_tables(statement, known))
    return Question(sql, (*tables, *_find_columns(statement, {each.table for each in tables})))


def parse_select(sql: str, *, dialect: str, known: Sequence[str]) -> exp.Expr:
    """Gives back the one statement that a query is, which reads and changes nothing; anything else is a QueryError."""
    example = f"Write one SELECT, such as: {EXAMPLE}"
    try:
        statements = [statement for statement in sqlglot.parse(sql, read=dialect) if statement]
    except SqlglotError as error:
        where, reason = _place_of(error)
        raise QueryError(
            f"the query can't be read{reason}", where=where, next_step=f"Write it more plainly. {example}"
        ) from error
    if not statements:
        raise QueryError("there is no query", where="query", next_step=example)
    if len(statements) > 1:
        what = f"one SELECT can be asked at a time, and these are {len(statements)}"
        raise QueryError(what, where="query", next_step="Ask them one after the other.")
    if not isinstance(statements[0], (exp.Query, exp.Describe, exp.Summarize)):
        raise refusal(sqlglot.tokenize(sql, read=dialect)[0].text.upper(), known)
    for function in statements[0].find_all(exp.Func):
        name = function.name if isinstance(function, exp.Anonymous) else function.sql_name()
        stands_for_table = isinstance(function.parent, (exp.Table, exp.Lateral)) and not function.parent.args.get("view")
        if stands_for_table and name not in _MAKERS:
            raise QueryError(ONLY_TABLES, where=_place_in(sql, function), next_step=NAME_ONE)
    return statements[0]


def named_tables(statement: exp.Expr, known: Sequence[str], *, own: Collection[str] = ()) -> tuple[str, ...]:
    """Gives back the tables that a statement reads, each once; a name that there is not is a QueryError.

    Schemas in `own` are the engine's own, and no tables of the lake.
    """
    return tuple(dict.fromkeys(each.table for each in _find_tables(statement, known, own=own)))


def refusal(word: str, known: Sequence[str]) -> QueryError:
    """Gives back why what begins with this word is not run; who asks for the tables is told them."""
    step = _which_tables("", known) if word == "SHOW" else f"Write one SELECT, such as: {EXAMPLE}"
    return QueryError(
        f"only a SELECT can be asked, and this is {word}: nothing is changed by a query", where="query", next_step=step
    )


def _find_tables(statement: exp.Expr, known: Sequence[str], *, own: Collection[str] = ()) -> Iterator[Mention]:
    ctes = {cte.alias for cte in statement.find_all(exp.CTE)}
    for table in statement.find_all(exp.Table):
        if not table.name or (not table.db and table.name in ctes) or isinstance(table.this, exp.Func) or table.db in own:
            continue
        name = ".".join(part.name for part in table.parts)
        if name not in known:
            raise QueryError(f'there is no table "{name}"', where="query", next_step=_which_tables(name, known))
        start, end = _span(table.parts)
        yield Mention(name, start, end, alias=table.alias)


def _find_columns(statement: exp.Expr, tables: Collection[str]) -> Iterator[Mention]:
    """Gives back where a column has its table's whole name before it. What follows the name may be a field of the column."""
    for column in statement.find_all(exp.Column):
        parts = [part for part in column.parts if isinstance(part, exp.Identifier)]
        for length in range(len(parts), 1, -1):
            name = ".".join(part.name for part in parts[:length])
            if name in tables:
                start, end = _span(parts[:length])
                yield Mention(name, start, end, is_column=True)
                break


def _span(parts: Sequence[exp.Expr]) -> tuple[int, int]:
    """Gives back where the words of a name begin and end in the query, quotes included."""
    return int(parts[0].meta["start"]), int(parts[-1].meta["end"]) + 1


def _place_in(sql: str, part: exp.Expr) -> str:
    """Gives back where a part of the query begins."""
    before = sql[: int(part.meta.get("start", 0))].split("\n")
    return f"query:{len(before)}:{len(before[-1]) + 1}"


def _place_of(error: SqlglotError) -> tuple[str, str]:
    """Gives back where sqlglot stopped reading, and its reason."""
    if not isinstance(error, ParseError) or not error.errors:
        return "query", ""
    first = error.errors[0]
    column = int(first["col"]) - len(str(first["highlight"])) + 1  # it says where the word ends
    reason = str(first["description"]).partition(" but got <")[0].rstrip(".")
    return f"query:{first['line']}:{column}", f": {reason[:1].lower()}{reason[1:]}"


def _which_tables(name: str, known: Sequence[str]) -> str:
    """Gives back what to ask instead of a table that there is not."""
    if not known:
        return "The lake has no tables yet: a pipeline makes them when it lands, as headrace demo lineage does."
    same = [each for each in known if each.endswith(f".{name}")]
    return f'Did you mean "{same[0]}"?' if same else suggest(name, known, plural="Tables")
