"""Check queries that compute a row from several rows of a driver: can a table of its kind be maintained incrementally?

A build processes either the new rows of a driver, or all rows of the keys that a change touches. A query that mixes rows in any
other way would return different rows in increments than in a full refresh, so `check` reports it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from headrace.spec.model.kinds import Kind
from headrace.spec.model.layers import LayerTable, Query
from headrace.spec.model.pipeline import TableName
from headrace.spec.sql.access_paths import key_paths
from headrace.spec.sql.aggregates.row_wise import named_queries, own_nodes
from headrace.spec.sql.queries import ParsedQuery, parse_query
from headrace.spec.sql.restriction_reasons import where_found

if TYPE_CHECKING:
    from sqlglot import exp

    from headrace.errors import SpecError

BY_KEY = ("upsert", "history", "aggregate")
"""The kinds that can recompute a key from all driver rows with this key."""

_MIXES = {
    "distinct": "DISTINCT",
    "group": "GROUP BY",
    "having": "HAVING",
    "qualify": "QUALIFY",
    "limit": "LIMIT",
    "offset": "OFFSET",
    "pivots": "PIVOT",
}
"""The clauses that compute a row from several rows, or that keep a row depending on other rows."""

_ONE_OF_REPEATED = ("upsert", "history", "entities")
"""The kinds whose rows are events: duplicates count once, so DISTINCT and UNION have no effect."""

_RANKS = ("RowNumber", "Rank", "DenseRank")

Queries = Mapping[str, "exp.Query"]


def mixes_rows(tree: exp.Query, kind: Kind) -> bool:
    """Return whether a row of a table of this kind can depend on several rows of a driver."""
    return next(_mixtures(tree, kind), None) is not None


def has_plain_keys(table: LayerTable, known: Mapping[TableName, Sequence[str]]) -> bool:
    """Return whether each key is a plain column of every driver wherever it is read, and rows of different keys don't mix.

    A row of a driver then affects only its own key.
    """
    if not isinstance(table.source, Query):
        return False
    parsed = parse_query(table.source.text, place=table.place)
    inputs = {name: known[name] for name in table.inputs if name in known}
    columns = key_paths(parsed, table.keys, known=inputs) or {}
    return all({key for _, key in columns.get(driver, ())} == {*table.keys} for driver in table.drivers)


def check_mixed_rows(table: LayerTable, *, known: Mapping[TableName, Sequence[str]]) -> SpecError | None:
    """Return an error if the query mixes rows in a way that the table's kind can't follow, else None.

    `known` are the columns of inputs, as far as they are known without an engine.
    """
    if not isinstance(table.source, Query) or table.kind in ("full", "features"):
        return None
    parsed = parse_query(table.source.text, place=table.place, origin=table.source.origin)
    mixture = next(_mixtures(parsed.tree, table.kind), None)
    if mixture is None:
        return None
    if table.kind not in BY_KEY:
        what = f"{mixture} combines several rows, but a table of kind {table.kind} processes each new row separately"
        return table.error(what, at="", fix="Set keys to the columns that rows are grouped by, or write kind: full")
    if has_plain_keys(table, known):
        return None
    if table.kind != "aggregate":
        what = f"{mixture} combines several rows, but not all keys are plain columns of the table's drivers"
        fix = "Select the keys as plain columns, group in a separate table without sequence_by, or write kind: full"
        return table.error(what, at="keys", fix=fix)
    why = _why_keys_are_missed(table, parsed)
    fix = "Compute it in a separate table that this one reads, or write kind: full"
    return table.error(f"can't map changed rows to keys: {why}", at="keys", fix=fix) if why else None


def _mixtures(query: exp.Expr, kind: Kind) -> Iterator[str]:
    """Yield each construct that mixes rows of drivers, from the outermost query to the tables in FROM."""
    from sqlglot import exp

    ignored = {"distinct"} if kind in _ONE_OF_REPEATED else set()
    for select, _ in _driving(query, {}):
        if isinstance(select, exp.SetOperation):
            if not (ignored and isinstance(select, exp.Union) and not _has_limit(select)):
                yield f"{where_found(select)}{type(select).__name__.upper()}"
            continue
        clauses = [words for name, words in _MIXES.items() if select.args.get(name) and name not in ignored]
        yield from (f"{where_found(select)}{words}" for words in clauses)
        for node in own_nodes(select):
            if isinstance(node, exp.Window):
                yield f"{where_found(node)}a window function"
            elif isinstance(node, exp.AggFunc):
                yield f"{where_found(node)}an aggregate"
        for join in select.args.get("joins") or ():
            if join.side.upper() in ("RIGHT", "FULL"):
                yield f"{where_found(join)}a {join.side.upper()} JOIN"


def _driving(query: exp.Expr, visible: Queries) -> Iterator[tuple[exp.Query, Queries]]:
    """Yield the queries that the result's rows pass through, and set operations that mix rows, each with its visible CTEs."""
    from sqlglot import exp

    names = named_queries(query, visible)
    if isinstance(query, exp.Subquery):
        yield from _driving(query.this, names)
    elif isinstance(query, exp.SetOperation):
        if not isinstance(query, exp.Union) or query.args.get("distinct") or _has_limit(query):
            yield query, names
        yield from _driving(query.this, names)
        yield from _driving(query.expression, names)
    elif isinstance(query, exp.Select):
        yield query, names
        below = _source(query, names)
        if below is not None:
            yield from _driving(*below)


def _has_limit(query: exp.SetOperation) -> bool:
    return any(query.args.get(name) for name in ("limit", "offset"))


def _source(select: exp.Select, names: Queries) -> tuple[exp.Query, Queries] | None:
    """Return the query in FROM with its visible CTEs, or None if FROM reads a table."""
    from sqlglot import exp

    from_ = select.args.get("from_")
    node = from_.this if from_ else None
    if isinstance(node, exp.Table) and not node.db and node.name in names:
        return names[node.name], {name: query for name, query in names.items() if name != node.name}
    return (node.this, names) if isinstance(node, exp.Subquery) else None


def _why_keys_are_missed(table: LayerTable, parsed: ParsedQuery) -> str | None:
    """Return why running the query on the changed rows may miss keys that they touch, or None.

    Keys that are expressions are found by running the query on the changed rows. That misses keys that are computed from
    several rows, and keys that are only returned because of other rows.
    """
    from sqlglot import exp

    for select, names in _driving(parsed.tree, {}):
        if not isinstance(select, exp.Select):
            continue
        if select.args.get("limit") or select.args.get("offset"):
            return f"{where_found(select)}LIMIT keeps rows depending on other rows"
        for name in ("where", "qualify"):
            clause = select.args.get(name)
            for condition in clause.this.flatten() if clause and isinstance(clause.this, exp.And) else [clause and clause.this]:
                if (
                    condition is not None
                    and _depends_on_many(condition, select, names)
                    and not _is_first(condition, select, names)
                ):
                    return f"{where_found(condition)}a filter on a value computed from several rows hides keys"
        for window in (node for node in own_nodes(select) if isinstance(node, exp.Window)):
            if not _partitions_by_keys(window, select, table.keys):
                return f"{where_found(window)}a window function mixes rows of different keys"
    for select, names in _outermost(parsed.tree, {}):
        for key in table.keys:
            expression = _output(select, key)
            if expression is not None and _depends_on_many(expression, select, names):
                return f'{where_found(expression)}key "{key}" is computed from several rows'
    return None


def _outermost(query: exp.Expr, visible: Queries) -> Iterator[tuple[exp.Select, Queries]]:
    """Yield the SELECTs that return the result's columns."""
    from sqlglot import exp

    names = named_queries(query, visible)
    if isinstance(query, exp.Select):
        yield query, names
    elif isinstance(query, exp.Subquery):
        yield from _outermost(query.this, names)
    elif isinstance(query, exp.SetOperation):
        yield from _outermost(query.this, names)
        yield from _outermost(query.expression, names)


def _output(select: exp.Select, name: str) -> exp.Expr | None:
    return next((output.unalias() for output in select.selects if output.alias_or_name.lower() == name.lower()), None)


def _depends_on_many(expression: exp.Expr, select: exp.Select, names: Queries) -> bool:
    """Return whether an expression of a SELECT is computed from several rows, in the SELECT itself or in its FROM."""
    return next(_multi_row_nodes(expression, select, names), None) is not None


def _multi_row_nodes(expression: exp.Expr, select: exp.Select, names: Queries) -> Iterator[exp.Expr]:
    """Yield the aggregates and window functions that an expression depends on."""
    from sqlglot import exp

    for node in (expression, *own_nodes(expression)):
        if isinstance(node, (exp.AggFunc, exp.Window)):
            yield node
        if isinstance(node, exp.Column):
            yield from _multi_row_nodes_below(node, select, names)


def _multi_row_nodes_below(column: exp.Column, select: exp.Select, names: Queries) -> Iterator[exp.Expr]:
    below = _source(select, names)
    if below is None or column.table not in ("", select.args["from_"].this.alias_or_name):
        return
    for inner, inner_names in _outermost(*below):
        output = _output(inner, column.name)
        if output is not None:
            yield from _multi_row_nodes(output, inner, inner_names)
        elif any(column.is_star for column in inner.selects):
            yield from _multi_row_nodes_below(column, inner, inner_names)


def _is_first(condition: exp.Expr, select: exp.Select, names: Queries) -> bool:
    """Return whether a condition keeps the first rows of each group, such as `row_number() OVER (…) = 1`."""
    from sqlglot import exp

    is_one = isinstance(condition, exp.EQ) and condition.expression.sql() == "1"
    is_bound = isinstance(condition, (exp.LTE, exp.LT)) and isinstance(condition.expression, exp.Literal)
    if not (is_one or is_bound) or not isinstance(condition.this, (exp.Column, exp.Window)):
        return False
    windows = list(_multi_row_nodes(condition.this, select, names))
    return all(
        isinstance(node, exp.Window) and type(node.this).__name__ in _RANKS for node in windows if not _is_in_window(node)
    )


def _is_in_window(node: exp.Expr) -> bool:
    """Return whether an aggregate is inside a window function."""
    from sqlglot import exp

    return not isinstance(node, exp.Window) and node.find_ancestor(exp.Window) is not None


def _partitions_by_keys(window: exp.Window, select: exp.Select, keys: Sequence[str]) -> bool:
    parts = {part.sql().lower() for part in window.args.get("partition_by") or ()}
    parts |= {part.name.lower() for part in window.args.get("partition_by") or () if part.name}
    outputs = [_output(select, key) for key in keys]
    return all(
        key.lower() in parts or (output is not None and output.sql().lower() in parts)
        for key, output in zip(keys, outputs, strict=True)
    )
