"""Check that a query processes each row of a driver separately, so that a part of the rows yields a part of the result."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING

from headrace.spec.model.pipeline import TableName
from headrace.spec.sql.queries import DIALECT, table_of
from headrace.spec.sql.restriction_reasons import where_found

if TYPE_CHECKING:
    from sqlglot import exp

_MIXES = {
    "distinct": "DISTINCT",
    "group": "several levels of GROUP BY",
    "having": "HAVING",
    "qualify": "QUALIFY",
    "limit": "LIMIT",
    "offset": "OFFSET",
    "order": "ORDER BY",
    "sort": "SORT BY",
    "windows": "WINDOW",
    "pivots": "PIVOT",
    "hint": "a hint",
}
"""Clauses that make a SELECT's rows depend on each other, or that a rewrite can't preserve."""

_VOLATILE = {
    *("now", "current_timestamp", "current_date", "current_time", "curdate", "localtimestamp", "unix_timestamp"),
    *("rand", "randn", "random", "uuid", "shuffle", "monotonically_increasing_id", "spark_partition_id", "input_file_name"),
}
"""Functions whose value differs between calls, or depends on the physical location of a row."""


class MixedRows(Exception):  # noqa: N818
    """The rows of a query depend on each other. The message says how."""


def check_row_wise(tree: exp.Select, drivers: Collection[TableName]) -> None:
    """Raise a MixedRows if a row below the query's own GROUP BY depends on more than one row of a driver."""
    from sqlglot import exp

    for function in tree.find_all(exp.Func):
        name = function.name.lower() if isinstance(function, exp.Anonymous) else function.sql_name().lower()
        if name in _VOLATILE:
            text = function.sql(dialect=DIALECT, comments=False)
            raise MixedRows(f"{where_found(function)}{text} has a different value in each build")
    _Walk(drivers, named_queries(tree, {})).enter(tree, ignored=("group", "having"))


class _Walk:
    def __init__(self, drivers: Collection[TableName], visible: Mapping[str, exp.Query]) -> None:
        self.drivers = drivers
        self.visible = visible

    def enter(self, select: exp.Select, *, ignored: Collection[str] = ()) -> None:
        from sqlglot import exp

        for name, words in _MIXES.items():
            if select.args.get(name) and name not in ignored:
                raise MixedRows(f"{where_found(select)}{words}")
        if any(isinstance(node, exp.Window) for node in own_nodes(select)):
            raise MixedRows(f"{where_found(select)}a window function")
        if not ignored and any(isinstance(node, exp.AggFunc) for node in own_nodes(select)):
            raise MixedRows(f"{where_found(select)}an aggregate below another")
        for join in select.args.get("joins") or ():
            if join.side.upper() in ("RIGHT", "FULL"):
                raise MixedRows(f"{where_found(join)}a {join.side.upper()} JOIN keeps unmatched rows")
        from_ = select.args.get("from_")
        if from_ is None:
            raise MixedRows(f"{where_found(select)}a SELECT without FROM")
        if any(self._reads_driver(node) for name, node in _parts(select) if name != "from_"):
            raise MixedRows(f"{where_found(select)}a driver is joined to itself, or read in a subquery")
        self._relation(from_.this)

    def _relation(self, node: exp.Expr) -> None:
        from sqlglot import exp

        if any(node.args.get(name) for name in ("sample", "pivots", "joins", "laterals", "limit", "order")):
            raise MixedRows(f"{where_found(node)}TABLESAMPLE, PIVOT or joins in brackets")
        if isinstance(node, exp.Subquery):
            self._query(node.this)
        elif isinstance(node, exp.Table) and not node.db and node.name in self.visible:
            hidden = {name: query for name, query in self.visible.items() if name != node.name}
            _Walk(self.drivers, hidden)._query(self.visible[node.name])
        elif not isinstance(node, exp.Table) or not isinstance(node.this, exp.Identifier):
            raise MixedRows(f"{where_found(node)}rows that don't come from a table")

    def _query(self, query: exp.Expr) -> None:
        from sqlglot import exp

        inner = _Walk(self.drivers, named_queries(query, self.visible))
        if isinstance(query, exp.Select):
            inner.enter(query)
        elif isinstance(query, exp.Union) and not query.args.get("distinct"):
            if any(query.args.get(name) for name in ("limit", "offset", "order", "by_name")):
                raise MixedRows(f"{where_found(query)}LIMIT, ORDER BY or BY NAME of a union")
            inner._query(query.left)
            inner._query(query.right)
        elif isinstance(query, exp.Subquery):
            inner._query(query.this)
        else:
            raise MixedRows(f"{where_found(query)}only UNION ALL keeps rows apart")

    def _reads_driver(self, node: exp.Expr) -> bool:
        from sqlglot import exp

        visible = self.visible
        for table in node.find_all(exp.Table):
            if table.db and table_of(table) in self.drivers:
                return True
            if not table.db and table.name in visible:
                hidden = {name: query for name, query in visible.items() if name != table.name}
                if _Walk(self.drivers, hidden)._reads_driver(visible[table.name]):
                    return True
        return False


def own_nodes(select: exp.Expr) -> Iterator[exp.Expr]:
    """Yield the nodes of a SELECT, without those of nested queries."""
    from sqlglot import exp

    waiting = [child for _, child in _parts(select)]
    while waiting:
        node = waiting.pop()
        if not isinstance(node, exp.Query):
            yield node
            waiting.extend(child for _, child in _parts(node))


def _parts(node: exp.Expr) -> Iterator[tuple[str, exp.Expr]]:
    for name, value in node.args.items():
        for child in value if isinstance(value, list) else [value]:
            if name not in ("with_", "with") and hasattr(child, "args"):
                yield name, child


def named_queries(query: exp.Expr, visible: Mapping[str, exp.Query]) -> Mapping[str, exp.Query]:
    """Return the visible CTEs of a query: its own, and those of enclosing queries."""
    with_ = query.args.get("with_")
    return {**visible, **{cte.alias: cte.this for cte in (with_.expressions if with_ else ())}}
