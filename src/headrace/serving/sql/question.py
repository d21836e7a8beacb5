"""What a query asks: one SELECT, and where it names tables of the lake. sqlglot reads it; the engine's dialect stays."""

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
    """A place in a query that names a table of the lake: as one to read, or before one of its columns.

    `start` and `end` are the first sign of the name and the one behind its last. `alias` is what the query calls it. A query
    can stand in the name's place where it `takes_subquery`, which is not so where it `is_described`.
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
        """What engines call a table that has no alias."""
        return self.alias or self.table.rpartition(".")[2]


@dataclass(frozen=True)
class SplitColumns:
    """The columns of a table that readers are shown, and those that are hidden."""

    shown: tuple[str, ...]
    hidden: frozenset[str]


@dataclass(frozen=True)
class Question:
    """One SELECT as it was asked, and all its mentions of tables. `columns` are those of tables that have hidden ones."""

    sql: str
    mentions: tuple[Mention, ...]
    columns: Mapping[str, SplitColumns] = field(default_factory=dict)

    @property
    def tables(self) -> tuple[str, ...]:
        """The tables to read, each once."""
        return tuple(dict.fromkeys(each.table for each in self.mentions if not each.is_column))

    def rename(self, name: Callable[[Mention], str]) -> str:
        """Return the query with other names in the places of these; everything else stays as it was asked."""
        sql = self.sql
        for each in sorted(self.mentions, key=lambda mention: mention.start, reverse=True):
            sql = sql[: each.start] + name(each) + sql[each.end :]
        return sql


def read_question(sql: str, *, dialect: str, known: Sequence[str]) -> Question:
    """Return what a query in an engine's SQL asks; raise a BadQueryError unless it is one SELECT of known tables."""
    statement = parse_select(sql, dialect=dialect, known=known)
    tables = tuple(_find_tables(statement, known, sql=sql))
    kept = {mention.table for mention in tables if not mention.takes_subquery}
    return Question(sql, (*tables, *_find_columns(statement, {each.table for each in tables}, kept=kept)))


def parse_select(sql: str, *, dialect: str, known: Sequence[str]) -> exp.Expr:
    """Return the one statement of a query, which reads tables and changes nothing; anything else is a BadQueryError."""
    example = f"Write one SELECT, such as: {EXAMPLE}"
    try:
        statements = [statement for statement in sqlglot.parse(sql, read=dialect) if statement]
    except SqlglotError as error:
        if isinstance(error, ParseError) and (first := sqlglot.tokenize(sql, read=dialect)[0]).token_type is TokenType.VAR:
            raise _refuse_word(first) from error
        where, reason = _place_of(error)
        raise BadQueryError(
            f"the query can't be read{reason}", where=where, next_step=f"Check the spelling there and just before it. {example}"
        ) from error
    except RecursionError:
        raise BadQueryError(
            "the query is nested too deeply", where="query", next_step="Split it into CTEs: WITH part AS (…) SELECT …"
        ) from None
    if not statements:
        raise BadQueryError("there is no query", where="query", next_step=example)
    if len(statements) > 1:
        what = f"one SELECT can be asked at a time, and these are {len(statements)}"
        raise BadQueryError(what, where="query", next_step="Ask them one after the other.")
    if not is_reading(statements[0]):
        raise _refuse_statement(statements[0], sqlglot.tokenize(sql, read=dialect)[0], known)
    check_quotes(sql, dialect=dialect)
    check_policy(statements[0], sql=sql, dialect=dialect)
    return statements[0]


def named_tables(statement: exp.Expr, known: Sequence[str], *, own: Collection[str] = ()) -> tuple[str, ...]:
    """Return the tables that a statement reads, each once; a name that there is not is a BadQueryError.

    Schemas in `own` are the engine's own, and no tables of the lake.
    """
    return tuple(dict.fromkeys(each.table for each in _find_tables(statement, known, own=own)))


def refusal(word: str, known: Sequence[str]) -> BadQueryError:
    """Return why what begins with this word is not run; who asks for the tables is told them."""
    step = _which_tables("", known) if word == "SHOW" else f"Write one SELECT, such as: {EXAMPLE}"
    return BadQueryError(
        f"only a SELECT can be asked, and this is {word}: nothing is changed by a query", where="query", next_step=step
    )


def _refuse_statement(statement: exp.Expr, first: Token, known: Sequence[str]) -> BadQueryError:
    """Return why a statement is refused: it changes something, or it is none."""
    if isinstance(statement, (exp.Condition, exp.Alias)):  # a bare expression: the first word is a name
        return _refuse_word(first)
    return refusal(first.text.upper(), known)


def _refuse_word(first: Token) -> BadQueryError:
    """Return the error of a query whose first word begins no statement."""
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
            raise BadQueryError(f'there is no table "{name}"', where="query", next_step=_which_tables(name, known))
        start, end = _span(table.parts)
        is_described = isinstance(table.parent, exp.Describe)
        takes_subquery = not is_described and _takes_subquery(table, sql[:start])
        yield Mention(name, start, end, alias=table.alias, takes_subquery=takes_subquery, is_described=is_described)


def _takes_subquery(table: exp.Table, before: str) -> bool:
    """Return whether a query can stand in the place of a table's name; `before` is the text that ends there.

    It has no points in time, is no `TABLE name`, and Spark wants an alias behind a sample, not before it.
    """
    is_sampled = table.args.get("sample") is not None and not table.alias
    return not (table.args.get("version") or table.args.get("when") or is_sampled or _TABLE_STATEMENT.search(before))


def _names_cte(table: exp.Table) -> bool:
    """Return whether a name is that of a CTE which can be seen from where it stands.

    A CTE elsewhere in the query doesn't count: an engine would look for a file of that name.
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


def _find_columns(statement: exp.Expr, tables: Collection[str], *, kept: Collection[str]) -> Iterator[Mention]:
    """Yield where a column has its table's whole name before it. What follows the name may be a field of the column.

    Tables in `kept` are named in the query as they are.
    """
    for column in statement.find_all(exp.Column):
        parts = [part for part in column.parts if isinstance(part, exp.Identifier)]
        for length in range(len(parts), 1, -1):
            name = ".".join(part.name for part in parts[:length])
            if name in tables:
                start, end = _span(parts[:length])
                yield Mention(name, start, end, is_column=True, takes_subquery=name not in kept)
                break


def _span(parts: Sequence[exp.Expr]) -> tuple[int, int]:
    """Return where the words of a name begin and end in the query, quotes included."""
    return int(parts[0].meta["start"]), int(parts[-1].meta["end"]) + 1


def _place_of(error: SqlglotError) -> tuple[str, str]:
    """Return where sqlglot stopped reading, and its reason."""
    if not isinstance(error, ParseError) or not error.errors:
        return "query", ""
    first = error.errors[0]
    column = int(first["col"]) - len(str(first["highlight"])) + 1  # it says where the word ends
    reason = str(first["description"]).partition(" but got <")[0].rstrip(".")
    if reason.startswith("Invalid expression"):  # sqlglot's words for a token that fits nowhere
        reason = f'syntax error at or near "{first["highlight"]}"'
    return f"query:{first['line']}:{column}", f": {reason[:1].lower()}{reason[1:]}"


def _which_tables(name: str, known: Sequence[str]) -> str:
    """Return what to ask instead of a table that there is not."""
    if not known:
        return "The lake has no tables yet: a pipeline makes them when it lands, as headrace demo lineage does."
    same = [each for each in known if each.endswith(f".{name}")]
    return f'Did you mean "{same[0]}"?' if same else suggest(name, known, plural="Tables")
