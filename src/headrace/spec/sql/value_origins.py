"""Trace the values of a query's columns to the table columns that they are copied from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice, product
from typing import TYPE_CHECKING

from headrace.spec.sql.query_blocks import Block, BlockColumn, Blocks

if TYPE_CHECKING:
    from sqlglot import exp
    from sqlglot.optimizer.scope import Scope

_MOST = 32
"""The maximum number of ways to trace a set of columns. Real queries have fewer."""


@dataclass(frozen=True)
class Origin:
    """A table, and its columns by their names in a query. All values of a query's row come from one row of the table."""

    table: exp.Table
    columns: tuple[tuple[str, str], ...]


Origins = tuple[Origin, ...]
"""Tables that together contain every combination of values that the columns can have, except nulls."""


@dataclass
class OriginFinder:
    """Trace values of columns through CTEs, subqueries and unions, regardless of what these do to rows."""

    blocks: Blocks
    _known: dict[tuple[int, frozenset[str]], list[Origins]] = field(default_factory=dict)

    def find(self, relation: exp.Table | Scope | None, names: Sequence[str]) -> list[Origins]:
        """Return the ways to trace the values of some of these columns. Any one of them suffices.

        A way without tables means that one of the columns is always null.
        """
        from sqlglot import exp
        from sqlglot.optimizer.scope import Scope

        if isinstance(relation, exp.Table):
            return [(Origin(relation, tuple((name, name) for name in names)),)]
        if not isinstance(relation, Scope):
            return []
        key = (id(relation), frozenset(names))
        if key not in self._known:
            is_union = isinstance(relation.expression, exp.Union)
            traces = self._of_union(relation, names) if is_union else self._of_select(self.blocks.of(relation), names)
            self._known[key] = list(islice(traces, _MOST))
        return self._known[key]

    def _of_union(self, scope: Scope, names: Sequence[str]) -> Iterator[Origins]:
        parts = []
        for part in scope.set_operation_scopes:
            part_names = dict(zip(output_names(scope), output_names(part), strict=False))
            renamed: dict[str, list[str]] = {}
            for name in names:
                if name in part_names:
                    renamed.setdefault(part_names[name], []).append(name)
            traces = self.find(part, tuple(renamed)) if renamed else []
            parts.append([_rename(trace, renamed) for trace in traces])
        yield from _combine(parts) if parts and not scope.expression.args.get("by_name") else ()

    def _of_select(self, block: Block | None, names: Sequence[str]) -> Iterator[Origins]:
        if block is None:
            return
        picked = {name: picked_columns(block, block.outputs.get(name)) for name in names}
        if () in picked.values():
            yield ()
            return
        carried: dict[str, dict[str, list[str]]] = {}
        for name in names:
            for column in block.with_twins(block.plain(block.outputs.get(name))):
                carried.setdefault(column.alias, {}).setdefault(column.name, []).append(name)
        for alias, renamed in carried.items():
            for trace in self.find(block.relation(alias), tuple(renamed)):
                yield _rename(trace, renamed)
        for name, columns in picked.items():
            if columns and not block.plain(block.outputs.get(name)):
                parts = [self.find(block.relation(column.alias), (column.name,)) for column in columns]
                named = zip(columns, parts, strict=True)
                yield from _combine([[_rename(trace, {column.name: [name]}) for trace in traces] for column, traces in named])


def picked_columns(block: Block, expression: exp.Expr | None) -> tuple[BlockColumn, ...] | None:
    """Return the columns that an expression takes its value from unless it is null, or None if it computes a new value."""
    from sqlglot import exp

    column = block.plain(expression)
    if column:
        return (column,)
    if isinstance(expression, exp.Null) or (isinstance(expression, exp.Cast) and isinstance(expression.this, exp.Null)):
        return ()
    if isinstance(expression, (exp.Paren, exp.Filter, exp.Window, exp.IgnoreNulls, exp.RespectNulls)):
        return picked_columns(block, expression.this)
    if isinstance(expression, (exp.Max, exp.Min, exp.ArgMax, exp.ArgMin, exp.First, exp.Last, exp.AnyValue)):
        several = expression.args.get("expressions") or expression.args.get("count")
        return None if several else picked_columns(block, expression.this)
    parts: list[exp.Expr | None] = []
    if isinstance(expression, exp.Coalesce):
        parts = [expression.this, *expression.expressions]
    elif isinstance(expression, exp.If):
        parts = [expression.args["true"], expression.args.get("false")]
    elif isinstance(expression, exp.Case):
        parts = [*(branch.args["true"] for branch in expression.args["ifs"]), expression.args.get("default")]
    picked = [picked_columns(block, part) for part in parts if part is not None]
    if not picked or None in picked:
        return None
    return tuple(dict.fromkeys(column for columns in picked for column in columns or ()))


def output_names(scope: Scope) -> list[str]:
    """Return the names of a query's columns in lower case, in their order."""
    from sqlglot import exp

    expression = scope.expression
    return [name.lower() for name in expression.named_selects] if isinstance(expression, exp.Query) else []


def _combine(parts: Sequence[Sequence[Origins]]) -> Iterator[Origins]:
    """Yield the combinations of one trace per part, each as one trace for all parts."""
    for traces in product(*parts):
        yield tuple(dict.fromkeys(origin for trace in traces for origin in trace))


def _rename(way: Origins, names: Mapping[str, Sequence[str]]) -> Origins:
    return tuple(
        Origin(origin.table, tuple((outer, column) for inner, column in origin.columns for outer in names[inner]))
        for origin in way
    )
