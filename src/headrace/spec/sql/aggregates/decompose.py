"""Decompose a GROUP BY query into its keys, its distinct aggregate calls, and its outputs as expressions over both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from headrace.spec.model.layers import LayerTable, Query
from headrace.spec.sql.aggregates.calls import FUNCTIONS, Call, LocatedCall, UnsupportedCall, find_calls
from headrace.spec.sql.aggregates.clauses import Clauses, Span, read_clauses
from headrace.spec.sql.aggregates.row_wise import MixedRows, check_row_wise, own_nodes
from headrace.spec.sql.queries import DIALECT, parse_query
from headrace.spec.sql.restriction_reasons import where_found

if TYPE_CHECKING:
    from sqlglot import exp

Part = str | int
"""A piece of SQL, or the index of a call whose value it stands for."""


@dataclass(frozen=True)
class Recomputed:
    """The reason why a table recomputes touched keys from all of their rows."""

    reason: str


@dataclass(frozen=True)
class Decomposition:
    """A query that can be maintained by partial states.

    `outputs` are its columns by name: SQL over the columns of the same row that are `keys`, and over the values of `calls`.
    `having` is its HAVING condition in the same form, and `having_at` its span in the text. `insert_at` is the offset at which
    columns can be added to the text, each after a comma.
    """

    query: Query
    keys: tuple[str, ...]
    calls: tuple[Call, ...]
    outputs: tuple[tuple[str, tuple[Part, ...]], ...]
    insert_at: int
    having: tuple[Part, ...] | None = None
    having_at: tuple[int, int] | None = None

    def with_columns(self, columns: Mapping[str, str]) -> Query:
        """Return the query with added columns, by name, and without its HAVING."""
        added = "".join(f",\n{sql} AS `{name}`" for name, sql in columns.items()) + "\n"
        start, end = self.having_at or (len(self.query.text), len(self.query.text))
        text = self.query.text[: self.insert_at] + added + self.query.text[self.insert_at : start] + self.query.text[end:]
        moved = tuple(
            replace(reference, start=reference.start + len(added), end=reference.end + len(added))
            if reference.start >= self.insert_at
            else reference
            for reference in self.query.references
        )
        return Query(text, moved)


def decompose(table: LayerTable) -> Decomposition | Recomputed:
    """Return the decomposition of a table's query, or why its keys are recomputed. `choose_states` checks the types."""
    from sqlglot.errors import SqlglotError

    if not isinstance(table.source, Query):
        return Recomputed("a Python function may read any row")
    unfollowed = [str(name) for name in table.lookups if name in table.frozen]
    if unfollowed:
        return Recomputed(f"changes of {', '.join(unfollowed)} are not followed (frozen)")
    parsed = parse_query(table.source.text, place=table.place, origin=table.source.origin)
    try:
        return _decompose_query(table, table.source, parsed.tree)
    except (MixedRows, UnsupportedCall, _UnclearError) as error:
        return Recomputed(str(error))
    except (SqlglotError, ValueError) as error:
        return Recomputed(f"the query can't be decomposed: {str(error).splitlines()[0]}")


def has_unique_keys(table: LayerTable) -> bool:
    """Return whether the query has one row per key: it groups by the keys in the outermost SELECT."""
    return isinstance(decompose(table), Decomposition)


class _UnclearError(Exception):
    """A query whose keys or outputs can't be derived from its text. The message says why."""


def _decompose_query(table: LayerTable, query: Query, tree: exp.Query) -> Decomposition:
    from sqlglot import exp

    clauses = read_clauses(query.text)
    if not isinstance(tree, exp.Select):
        raise _UnclearError("the query is a UNION without a GROUP BY around it")
    if clauses is None:
        raise _UnclearError("the query has no FROM")
    if len(clauses.items) != len(tree.selects) or any(select.is_star for select in tree.selects):
        raise _UnclearError("the SELECT list contains *")
    if not tree.args.get("group"):
        raise _UnclearError(_why_not_grouped(tree))
    _check_functions(tree)
    check_row_wise(tree, table.drivers)
    sources = _sources(tree)
    items = {select.alias_or_name: _unaliased(item, select) for select, item in zip(tree.selects, clauses.items, strict=True)}
    if len(items) != len(clauses.items) or not all(isinstance(select, (exp.Alias, exp.Column)) for select in tree.selects):
        raise _UnclearError("a column without a name")
    calls = {name: tuple(find_calls(item)) for name, item in items.items()}
    having = clauses.having.part(1, len(clauses.having.tokens)) if clauses.having else None
    conditions = tuple(find_calls(having)) if having else ()
    if len(conditions) + sum(map(len, calls.values())) != sum(1 for node in own_nodes(tree) if _is_aggregate(node)):
        raise _UnclearError("aggregates that can't be located in the text")
    keys = _keys(items, clauses, tree, sources)
    if set(keys.values()) != set(table.keys):
        grouped, declared = ", ".join(keys.values()), ", ".join(table.keys)
        raise _UnclearError(f"the query groups by {grouped or 'nothing'}, but the keys are {declared}")
    distinct = tuple(dict.fromkeys(located.call for item in (*calls.values(), conditions) for located in item))

    def parts_of(name: str, item: Span, calls: Sequence[LocatedCall]) -> tuple[Part, ...]:
        parts: list[Part] = []
        at = 0
        for located in calls:
            parts += [*_with_keys(item.part(at, located.start), keys, sources), distinct.index(located.call)]
            at = located.end
        parts += _with_keys(item.part(at, len(item.tokens)), keys, sources)
        _check_columns(name, parts, keys)
        return tuple(parts)

    outputs = tuple((name, parts_of(name, item, calls[name])) for name, item in items.items())
    decomposition = Decomposition(query, tuple(keys.values()), distinct, outputs, clauses.from_at)
    if having is None or clauses.having is None:
        return decomposition
    words = clauses.having.tokens
    return replace(decomposition, having=parts_of("HAVING", having, conditions), having_at=(words[0].start, words[-1].end + 1))


def _why_not_grouped(tree: exp.Select) -> str:
    """Return why a query without GROUP BY in its outermost SELECT has no states to add changes to."""
    from sqlglot import exp

    group = tree.find(exp.Group)
    if group is None:
        return "the query has no GROUP BY"
    return f"{where_found(group)}the GROUP BY is in a subquery or CTE; to add changes instead, put it into a table of its own"


def _check_functions(tree: exp.Select) -> None:
    """Raise an _UnclearError if the SELECT list has anything but keys and mergeable aggregates."""
    from sqlglot import exp

    having = tree.args.get("having")
    for select in (*tree.selects, *((having,) if having else ())):
        if select.find(exp.Query):
            raise _UnclearError(f"{where_found(select)}a subquery next to aggregates")
        for node in select.find_all(exp.AggFunc, exp.Anonymous, exp.Window, exp.UDTF):
            if isinstance(node, exp.Window):
                raise _UnclearError(f"{where_found(node)}a window function")
            if isinstance(node, exp.UDTF):
                raise _UnclearError(f"{where_found(node)}a generator next to aggregates")
            if isinstance(node, exp.AggFunc) and not _is_aggregate(node):
                name = node.sql(dialect=DIALECT, comments=False).partition("(")[0].lower()
                raise _UnclearError(f"{where_found(node)}{name}() needs all values of a key")
    group = tree.args["group"]
    if group.find(exp.Rollup, exp.Cube, exp.GroupingSets) or group.args.get("totals"):
        raise _UnclearError("several grouping sets")


def _is_aggregate(node: exp.Expr) -> bool:
    from sqlglot import exp

    numbers = (exp.Count, exp.CountIf, exp.Sum, exp.Avg, exp.Min, exp.Max)
    others = (exp.LogicalAnd, exp.LogicalOr, exp.ArgMin, exp.ArgMax, exp.ArrayUniqueAgg, exp.Any)
    return isinstance(node, (*numbers, *others)) or (isinstance(node, exp.Anonymous) and node.name.lower() in FUNCTIONS)


def _sources(tree: exp.Select) -> tuple[str, ...]:
    """Return the name of the only source, which columns can be qualified with, or nothing for several sources."""
    if tree.args.get("joins") or tree.args.get("laterals"):
        return ()
    return (tree.args["from_"].this.alias_or_name.lower(),)


def _unaliased(item: Span, select: exp.Expr) -> Span:
    from sqlglot import exp

    if not isinstance(select, exp.Alias):
        return item
    end = len(item.tokens) - 1
    if end > 0 and item.tokens[end - 1].text.upper() == "AS":
        end -= 1
    shorter = item.part(0, end)
    if shorter is None:
        raise _UnclearError("a column without an expression before its name")
    return shorter


_Words = tuple[tuple[str, bool], ...]


def _keys(items: Mapping[str, Span], clauses: Clauses, tree: exp.Select, sources: Sequence[str]) -> dict[_Words, str]:
    """Return the expressions of GROUP BY, each with the output column that contains it."""
    names = list(items)
    if tree.args["group"].args.get("all"):
        plain = [name for name in names if not any(True for _ in find_calls(items[name]))]
        return {items[name].words(sources): name for name in plain}
    keys: dict[_Words, str] = {}
    for key in clauses.keys:
        words = key.words(sources)
        number = int(words[0][0]) if len(words) == 1 and words[0][0].isdigit() else None
        shown = [name for name in names if items[name].words(sources) == words]
        named = [name for name in names if words == ((name.lower(), False),)]
        if number is not None and 1 <= number <= len(names):
            keys[items[names[number - 1]].words(sources)] = names[number - 1]
        elif shown:
            keys[words] = shown[0]
        elif named and (named[0].lower(), False) not in items[named[0]].words():
            keys[items[named[0]].words(sources)] = named[0]
        else:
            raise _UnclearError(f"no column contains the GROUP BY expression {' '.join(word for word, _ in words)}")
    return keys


def _with_keys(span: Span | None, keys: Mapping[_Words, str], sources: Sequence[str]) -> list[Part]:
    """Return SQL with the expressions of GROUP BY replaced by key columns, and everything else unchanged."""
    if span is None:
        return []
    longest = sorted(keys, key=len, reverse=True)
    written, at, index = "", span.tokens[0].start, 0
    while index < len(span.tokens):
        ends = ((_match(span, index, words, sources), keys[words]) for words in longest)
        end, key = next(((end, key) for end, key in ends if end), (index + 1, None))
        if key:
            written += f"{span.text[at : span.tokens[index].start]}`{key}`"
            at = span.tokens[end - 1].end + 1
        index = end
    return [f"{written}{span.text[at : span.tokens[-1].end + 1]}\n"]


def _match(span: Span, start: int, words: _Words, sources: Sequence[str]) -> int | None:
    """Return the end of an expression that starts at a token and has these words, or None if there is none."""
    for end in range(start + len(words), min(len(span.tokens), start + 2 * len(words) + 2) + 1):
        part = span.part(start, end)
        if part and part.words(sources) == words:
            return end
    return None


def _check_columns(name: str, parts: Sequence[Part], keys: Mapping[_Words, str]) -> None:
    """Raise an _UnclearError if an output has columns that are not keys: they may differ between rows of a key."""
    from sqlglot import exp, parse_one

    text = "".join(part if isinstance(part, str) else " 1 " for part in parts)
    shown = set(keys.values())
    for column in parse_one(text, dialect=DIALECT).find_all(exp.Column):
        if column.parts[0].name not in shown:
            raise _UnclearError(f'"{name}" depends on "{column.sql(dialect=DIALECT)}", which is not a key')
