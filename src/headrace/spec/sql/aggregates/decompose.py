"""Take a GROUP BY query apart: its keys, its distinct aggregate calls, and its outputs as expressions over both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from headrace.spec.model.layers import LayerTable, Query
from headrace.spec.sql.aggregates.calls import FUNCTIONS, Call, Found, UnsupportedCall, find_calls
from headrace.spec.sql.aggregates.clauses import Clauses, Span, read_clauses
from headrace.spec.sql.aggregates.row_wise import MixedRows, check_row_wise, own_nodes
from headrace.spec.sql.queries import DIALECT, parse_query
from headrace.spec.sql.restriction_reasons import where_found

if TYPE_CHECKING:
    from sqlglot import exp

Part = str | int
"""A piece of SQL, or the number of a call whose value stands there."""


@dataclass(frozen=True)
class Recomputed:
    """Why touched keys of a table are recomputed from all their rows."""

    reason: str


@dataclass(frozen=True)
class Decomposition:
    """A query whose keys can be maintained by partial states.

    `outputs` are its columns by name: SQL over the columns of the same row that are `keys`, and over the values of `calls`.
    `having` is its condition for keys, in the same form, and `having_at` where that stands in the text. Columns can be added to
    the text at `insert_at`, each after a comma.
    """

    query: Query
    keys: tuple[str, ...]
    calls: tuple[Call, ...]
    outputs: tuple[tuple[str, tuple[Part, ...]], ...]
    insert_at: int
    having: tuple[Part, ...] | None = None
    having_at: tuple[int, int] | None = None

    def with_columns(self, columns: Mapping[str, str]) -> Query:
        """Return the query with more columns, by name, and without its HAVING."""
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
    """Return the parts of a table's query, or why its keys are recomputed. Types are not known here: see `choose_states`."""
    from sqlglot.errors import SqlglotError

    if not isinstance(table.source, Query):
        return Recomputed("a Python function may read any row")
    unfollowed = [str(name) for name in table.lookups if name in table.frozen]
    if unfollowed:
        return Recomputed(f"changes of {', '.join(unfollowed)} are not followed (frozen)")
    parsed = parse_query(table.source.text, place=table.place, origin=table.source.origin)
    try:
        return _take_apart(table, table.source, parsed.tree)
    except (MixedRows, UnsupportedCall, _UnclearError) as error:
        return Recomputed(str(error))
    except (SqlglotError, ValueError) as error:
        return Recomputed(f"its text can't be taken apart: {str(error).splitlines()[0]}")


def has_unique_keys(table: LayerTable) -> bool:
    """Return whether the query's text tells that each key has one row: it groups by the keys, in the outermost SELECT."""
    return isinstance(decompose(table), Decomposition)


class _UnclearError(Exception):
    """A query whose keys or outputs can't be told from its text; the message says why."""


def _take_apart(table: LayerTable, query: Query, tree: exp.Query) -> Decomposition:
    from sqlglot import exp

    clauses = read_clauses(query.text)
    if not isinstance(tree, exp.Select) or clauses is None:
        raise _UnclearError("several queries, or none with a FROM")
    if len(clauses.items) != len(tree.selects) or any(select.is_star for select in tree.selects):
        raise _UnclearError("columns that * stands for")
    if not tree.args.get("group"):
        raise _UnclearError("no GROUP BY of its own")
    _check_functions(tree)
    check_row_wise(tree, table.drivers)
    sources = _sources(tree)
    items = {select.alias_or_name: _unaliased(item, select) for select, item in zip(tree.selects, clauses.items, strict=True)}
    if len(items) != len(clauses.items) or not all(isinstance(select, (exp.Alias, exp.Column)) for select in tree.selects):
        raise _UnclearError("a column without a name of its own")
    calls = {name: tuple(find_calls(item)) for name, item in items.items()}
    having = clauses.having.part(1, len(clauses.having.tokens)) if clauses.having else None
    conditions = tuple(find_calls(having)) if having else ()
    if len(conditions) + sum(map(len, calls.values())) != sum(1 for node in own_nodes(tree) if _is_aggregate(node)):
        raise _UnclearError("aggregates that can't be told apart")
    keys = _keys(items, clauses, tree, sources)
    if set(keys.values()) != set(table.keys):
        grouped, declared = ", ".join(keys.values()), ", ".join(table.keys)
        raise _UnclearError(f"it is grouped by {grouped or 'nothing'}, and its keys are {declared}")
    distinct = tuple(dict.fromkeys(found.call for item in (*calls.values(), conditions) for found in item))

    def parts_of(name: str, item: Span, calls: Sequence[Found]) -> tuple[Part, ...]:
        parts: list[Part] = []
        at = 0
        for found in calls:
            parts += [*_with_keys(item.part(at, found.start), keys, sources), distinct.index(found.call)]
            at = found.end
        parts += _with_keys(item.part(at, len(item.tokens)), keys, sources)
        _check_columns(name, parts, keys)
        return tuple(parts)

    outputs = tuple((name, parts_of(name, item, calls[name])) for name, item in items.items())
    found = Decomposition(query, tuple(keys.values()), distinct, outputs, clauses.from_at)
    if having is None or clauses.having is None:
        return found
    words = clauses.having.tokens
    return replace(found, having=parts_of("HAVING", having, conditions), having_at=(words[0].start, words[-1].end + 1))


def _check_functions(tree: exp.Select) -> None:
    """Raise an _UnclearError for what a SELECT list has besides keys and aggregates that can be merged."""
    from sqlglot import exp

    having = tree.args.get("having")
    for select in (*tree.selects, *((having,) if having else ())):
        if select.find(exp.Query):
            raise _UnclearError(f"{where_found(select)}a subquery beside aggregates")
        for node in select.find_all(exp.AggFunc, exp.Anonymous, exp.Window, exp.UDTF):
            if isinstance(node, exp.Window):
                raise _UnclearError(f"{where_found(node)}a window function")
            if isinstance(node, exp.UDTF):
                raise _UnclearError(f"{where_found(node)}a generator beside aggregates")
            if isinstance(node, exp.AggFunc) and not _is_aggregate(node):
                name = node.sql(dialect=DIALECT, comments=False).partition("(")[0].lower()
                raise _UnclearError(f"{where_found(node)}{name}() needs all values of a key")
    group = tree.args["group"]
    if group.find(exp.Rollup, exp.Cube, exp.GroupingSets) or group.args.get("totals"):
        raise _UnclearError("several sets of keys")


def _is_aggregate(node: exp.Expr) -> bool:
    from sqlglot import exp

    numbers = (exp.Count, exp.CountIf, exp.Sum, exp.Avg, exp.Min, exp.Max)
    others = (exp.LogicalAnd, exp.LogicalOr, exp.ArgMin, exp.ArgMax, exp.ArrayUniqueAgg, exp.Any)
    return isinstance(node, (*numbers, *others)) or (isinstance(node, exp.Anonymous) and node.name.lower() in FUNCTIONS)


def _sources(tree: exp.Select) -> tuple[str, ...]:
    """Return the name that can stand before a column without changing what it means: that of the only source."""
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
        raise _UnclearError("a column that can't be told from its name")
    return shorter


_Words = tuple[tuple[str, bool], ...]


def _keys(items: Mapping[str, Span], clauses: Clauses, tree: exp.Select, sources: Sequence[str]) -> dict[_Words, str]:
    """Return the expressions of GROUP BY, each with the column that shows it."""
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
            raise _UnclearError(f"no column shows what it is grouped by: {' '.join(word for word, _ in words)}")
    return keys


def _with_keys(span: Span | None, keys: Mapping[_Words, str], sources: Sequence[str]) -> list[Part]:
    """Return SQL in which the columns that are keys stand in the place of what they are grouped by; all else is as written."""
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
    """Return where an expression ends that begins at a token and has these words, or None."""
    for end in range(start + len(words), min(len(span.tokens), start + 2 * len(words) + 2) + 1):
        part = span.part(start, end)
        if part and part.words(sources) == words:
            return end
    return None


def _check_columns(name: str, parts: Sequence[Part], keys: Mapping[_Words, str]) -> None:
    """Raise an _UnclearError where an output has columns that are no keys: they may differ between rows of a key."""
    from sqlglot import exp, parse_one

    text = "".join(part if isinstance(part, str) else " 1 " for part in parts)
    shown = set(keys.values())
    for column in parse_one(text, dialect=DIALECT).find_all(exp.Column):
        if column.parts[0].name not in shown:
            raise _UnclearError(f'"{name}" depends on "{column.sql(dialect=DIALECT)}", which is no key')
