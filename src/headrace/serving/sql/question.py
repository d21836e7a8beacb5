"""Parse a query with sqlglot: one SELECT, and the positions where it names tables. The engine's dialect is kept."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import sqlglot
from sqlglot import Token, TokenType, exp
from sqlglot.errors import ParseError, SqlglotError

from headrace.errors import BadQueryError
from headrace.serving.sql.sql_policy import check_policy, check_quotes, is_reading
from headrace.spec.problems import suggest

BEGINNINGS = "SELECT, WITH, FROM, DESCRIBE or SUMMARIZE"
EXAMPLE = "SELECT count(*) FROM lineage.events"
_TABLE_STATEMENT = re.compile(r"\bTABLE\s+$", re.IGNORECASE)


@dataclass(frozen=True)
class Mention:
    """A position in a query that names a table of the lake: as a table to read, or before one of its columns.

    `start` is the index of the name's first character, `end` the index after its last. `alias` is its alias in the query. With
    `takes_subquery` a subquery can replace the name; it can't if the table `is_described`.
    """

    table: str
    start: int
    end: int
    is_column: bool = False
    alias: str = ""
    takes_subquery: bool = True
    is_described: bool = False

    @property
    def short(self) -> str:
        """The alias, else the last part of the name, as engines call the table."""
        return self.alias or self.table.rpartition(".")[2]


@dataclass(frozen=True)
class SplitColumns:
    """The visible and the hidden columns of a table."""

    shown: tuple[str, ...]
    hidden: frozenset[str]


@dataclass(frozen=True)
class Question:
    """The text of one SELECT, and its mentions of tables.

    `columns` has the tables of which a query reads listed columns: those with hidden ones, and all tables as of a moment.
    `snapshots` has the ids of the snapshots to read; it is empty for a query of the tables as they are.
    """

    sql: str
    mentions: tuple[Mention, ...]
    columns: Mapping[str, SplitColumns] = field(default_factory=dict)
    snapshots: Mapping[str, int] = field(default_factory=dict)

    @property
    def tables(self) -> tuple[str, ...]:
        """The distinct tables to read."""
        return tuple(dict.fromkeys(mention.table for mention in self.mentions if not mention.is_column))

    def rename(self, name: Callable[[Mention], str]) -> str:
        """Return the query with `name(mention)` instead of each mention; everything else is unchanged."""
        sql = self.sql
        for mention in sorted(self.mentions, key=lambda mention: mention.start, reverse=True):
            sql = sql[: mention.start] + name(mention) + sql[mention.end :]
        return sql


def read_question(sql: str, *, dialect: str, known: Sequence[str]) -> Question:
    """Return the question of a query in an engine's SQL. Raises a BadQueryError unless it is one SELECT of known tables."""
    statement = parse_select(sql, dialect=dialect, known=known)
    tables = tuple(_find_tables(statement, known, sql=sql))
    unchanged = {mention.table for mention in tables if not mention.takes_subquery}
    return Question(sql, (*tables, *_find_columns(statement, {table.table for table in tables}, unchanged=unchanged)))


def parse_select(sql: str, *, dialect: str, known: Sequence[str]) -> exp.Expr:
    """Return the statement of a query. Raises a BadQueryError unless it is one statement that only reads."""
    example = f"Write one SELECT, such as: {EXAMPLE}"
    try:
        statements = [statement for statement in sqlglot.parse(sql, read=dialect) if statement]
    except SqlglotError as error:
        if isinstance(error, ParseError) and (first := sqlglot.tokenize(sql, read=dialect)[0]).token_type is TokenType.VAR:
            raise _refuse_word(first) from error
        where, reason = _place_of(error)
        raise BadQueryError(
            f"the query can't be parsed{reason}",
            where=where,
            next_step=f"Check the spelling there and just before it. {example}",
        ) from error
    except RecursionError:
        raise BadQueryError(
            "the query is nested too deeply", where="query", next_step="Split it into CTEs: WITH part AS (…) SELECT …"
        ) from None
    if not statements:
        raise BadQueryError("the query is empty", where="query", next_step=example)
    if len(statements) > 1:
        what = f"a query must be one SELECT, and this has {len(statements)} statements"
        raise BadQueryError(what, where="query", next_step="Run them one after the other.")
    if not is_reading(statements[0]):
        raise _refuse_statement(statements[0], sqlglot.tokenize(sql, read=dialect)[0], known)
    check_quotes(sql, dialect=dialect)
    check_policy(statements[0], sql=sql, dialect=dialect)
    return statements[0]


def named_tables(statement: exp.Expr, known: Sequence[str], *, own: Collection[str] = ()) -> tuple[str, ...]:
    """Return the distinct tables that a statement reads. Raises a BadQueryError for an unknown table.

    Tables of the schemas in `own` belong to the engine and are skipped.
    """
    return tuple(dict.fromkeys(mention.table for mention in _find_tables(statement, known, own=own)))


def refusal(word: str, known: Sequence[str]) -> BadQueryError:
    """Return the error for a statement that begins with this word; for SHOW, it lists the tables."""
    step = _which_tables("", known) if word == "SHOW" else f"Write one SELECT, such as: {EXAMPLE}"
    return BadQueryError(f"only SELECT queries are allowed, and this is {word}", where="query", next_step=step)


def _refuse_statement(statement: exp.Expr, first: Token, known: Sequence[str]) -> BadQueryError:
    """Return the error for a statement that writes, or for a text that is not a statement."""
    if isinstance(statement, (exp.Condition, exp.Alias)):  # a bare expression: the first word is a name
        return _refuse_word(first)
    return refusal(first.text.upper(), known)


def _refuse_word(first: Token) -> BadQueryError:
    """Return the error for a query whose first word does not begin a statement."""
    where = f"query:{first.line}:{first.col - len(first.text) + 1}"
    return BadQueryError(f'syntax error at or near "{first.text}"', where=where, next_step=f"Begin with {BEGINNINGS}.")


def _find_tables(statement: exp.Expr, known: Sequence[str], *, own: Collection[str] = (), sql: str = "") -> Iterator[Mention]:
    for table in statement.find_all(exp.Table):
        if isinstance(table.this, exp.Func) or table.args.get("rows_from") or table.db in own:
            continue
        if not table.db and _names_cte(table):
            continue
        name = ".".join(part.name for part in table.parts)
        if name not in known:
            raise BadQueryError(f'table not found: "{name}"', where="query", next_step=_which_tables(name, known))
        start, end = _span(table.parts)
        is_described = isinstance(table.parent, exp.Describe)
        takes_subquery = not is_described and _takes_subquery(table, sql[:start])
        yield Mention(name, start, end, alias=table.alias, takes_subquery=takes_subquery, is_described=is_described)


def _takes_subquery(table: exp.Table, before: str) -> bool:
    """Return whether a subquery can replace a table's name; `before` is the query up to the name.

    It can't with time travel or in `TABLE name`, nor before a sample without alias, because Spark expects the alias after it.
    """
    is_sampled = table.args.get("sample") is not None and not table.alias
    return not (table.args.get("version") or table.args.get("when") or is_sampled or _TABLE_STATEMENT.search(before))


def _names_cte(table: exp.Table) -> bool:
    """Return whether a name refers to a CTE that is in scope.

    A CTE out of scope doesn't count, because an engine would look for a file with that name.
    """
    child: exp.Expr = table
    parent = table.parent
    while parent is not None:
        if isinstance(parent, exp.With):
            above = parent.expressions[: child.index if child.index is not None else 0]
            visible = [*above, child] if parent.recursive else above
        else:
            holder = parent.args.get("with_")
            visible = holder.expressions if holder is not None and holder is not child else []
        if any(cte.alias.lower() == table.name.lower() for cte in visible):
            return True
        child, parent = parent, parent.parent
    return False


def _find_columns(statement: exp.Expr, tables: Collection[str], *, unchanged: Collection[str]) -> Iterator[Mention]:
    """Yield the mentions of columns that are qualified with their table's full name.

    Tables in `unchanged` keep their name in the query.
    """
    for column in statement.find_all(exp.Column):
        parts = [part for part in column.parts if isinstance(part, exp.Identifier)]
        for length in range(len(parts), 1, -1):
            name = ".".join(part.name for part in parts[:length])
            if name in tables:
                start, end = _span(parts[:length])
                yield Mention(name, start, end, is_column=True, takes_subquery=name not in unchanged)
                break


def _span(parts: Sequence[exp.Expr]) -> tuple[int, int]:
    """Return the start and end of a name in the query, including quotes."""
    return int(parts[0].meta["start"]), int(parts[-1].meta["end"]) + 1


def _place_of(error: SqlglotError) -> tuple[str, str]:
    """Return where sqlglot stopped reading, and its reason."""
    if not isinstance(error, ParseError) or not error.errors:
        return "query", ""
    first = error.errors[0]
    column = int(first["col"]) - len(str(first["highlight"])) + 1  # sqlglot's column is the end of the word
    reason = str(first["description"]).partition(" but got <")[0].rstrip(".")
    if reason.startswith("Invalid expression"):  # sqlglot's message for an unexpected token
        reason = f'syntax error at or near "{first["highlight"]}"'
    return f"query:{first['line']}:{column}", f": {reason[:1].lower()}{reason[1:]}"


def _which_tables(name: str, known: Sequence[str]) -> str:
    """Return the next step for an unknown table."""
    if not known:
        return "The lake has no tables yet. A pipeline creates them when it lands, such as: headrace demo lineage"
    same = [table for table in known if table.endswith(f".{name}")]
    return f'Did you mean "{same[0]}"?' if same else suggest(name, known, plural="Tables")
