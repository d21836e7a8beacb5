"""Where the values of a query's columns come from, and the SQL that makes each of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headrace.spec.model.pipeline import TableName
from headrace.spec.sql.queries import DIALECT, ParsedQuery, columns_of, qualify_query, split_namespaces, table_of

if TYPE_CHECKING:
    from sqlglot import exp
    from sqlglot.optimizer.scope import Scope


@dataclass(frozen=True)
class ColumnSources:
    """A column of a query: the input columns that its values are made of, and the expressions that make it.

    There is no expression where the column is copied, and more than one where a union makes it in different ways.
    """

    name: str
    sources: tuple[tuple[TableName, str], ...]
    expressions: tuple[str, ...]


def find_sources(parsed: ParsedQuery, *, known: Mapping[TableName, Sequence[str]]) -> tuple[ColumnSources, ...] | None:
    """Return a query's columns with their sources, or None where only an engine can tell what they are.

    What stands in a column's own expression counts. What only chooses or orders rows does not: WHERE, ON, GROUP BY,
    HAVING, an aggregate's FILTER, a window's PARTITION BY and ORDER BY. `known` are the columns of inputs, as far as they are.
    """
    from sqlglot.errors import SqlglotError
    from sqlglot.optimizer.scope import build_scope

    try:
        qualified = qualify_query(parsed, known=known, strict=False)
    except SqlglotError:
        return None
    names, root = parsed.columns or columns_of(qualified), build_scope(qualified)
    if names is None or root is None:
        return None
    tracer = _Tracer({each.table for each in parsed.query.references}, known)
    return tuple(tracer.column(root, index, name) for index, name in enumerate(names))


@dataclass
class _Found:
    sources: dict[tuple[TableName, str], None] = field(default_factory=dict)
    expressions: dict[str, None] = field(default_factory=dict)

    def add(self, other: _Found) -> None:
        self.sources |= other.sources
        self.expressions |= other.expressions


class _Tracer:
    def __init__(self, tables: set[TableName], known: Mapping[TableName, Sequence[str]]) -> None:
        self._tables = {str(each).lower(): each for each in tables}
        self._spelled = {each: {name.lower(): name for name in names} for each, names in known.items()}
        self._done: dict[tuple[int, int], _Found] = {}

    def column(self, scope: Scope, index: int, name: str) -> ColumnSources:
        found = self._trace(scope, index)
        return ColumnSources(name, tuple(found.sources), tuple(found.expressions))

    def _trace(self, scope: Scope, index: int) -> _Found:
        """Return what makes the column at a place of a query, or of each part of a union."""
        key = (id(scope), index)
        if key in self._done:
            return self._done[key]
        found = self._done[key] = _Found()  # a recursive query meets itself here
        if scope.set_operation_scopes:
            for part in scope.set_operation_scopes:
                found.add(self._trace(part, index))
            return found
        selects = _selects(scope)
        if index < len(selects):
            self._trace_expression(scope, selects[index].unalias(), found)
        return found

    def _trace_expression(self, scope: Scope, expression: exp.Expr, found: _Found) -> None:
        from sqlglot import exp

        if isinstance(expression, exp.Column):
            found.add(self._resolve(scope, expression))
            return
        found.expressions[_text(scope, expression)] = None
        for column, owner in _value_columns(scope, expression):
            found.sources |= self._resolve(owner, column).sources

    def _resolve(self, scope: Scope | None, column: exp.Column) -> _Found:
        """Return where a column comes from: a table, or a query inside the query, from the inside out."""
        from sqlglot import exp
        from sqlglot.optimizer.scope import Scope

        name = column.table or (self._only_unknown(scope) if scope else "")
        while scope is not None and name not in scope.sources:
            scope = scope.parent
        source = scope.sources[name] if scope is not None else None
        found = _Found()
        if isinstance(source, exp.Table):
            table = self._tables.get(str(table_of(source)).lower())
            if table is not None:
                spelled = self._spelled.get(table, {})
                found.sources[(table, spelled.get(column.name.lower(), column.name))] = None
        elif isinstance(source, Scope) and source.is_udtf:
            made = source.expression.this or source.expression  # VALUES stand for themselves
            found.expressions[made.sql(dialect=DIALECT, comments=False)] = None
            for each in source.expression.find_all(exp.Column):
                if each.table != name:
                    found.sources |= self._resolve(scope, each).sources
        elif isinstance(source, Scope):
            names = [each.alias_or_name.lower() for each in _selects(source)]
            if column.name.lower() in names:
                found.add(self._trace(source, names.index(column.name.lower())))
        return found

    def _only_unknown(self, scope: Scope) -> str:
        """Return the one source whose columns nobody knows, such as a Python table: what no other has must be its."""
        from sqlglot import exp

        unknown = [
            name
            for name, (_, source) in scope.selected_sources.items()
            if isinstance(source, exp.Table) and self._tables.get(str(table_of(source)).lower()) not in self._spelled
        ]
        return unknown[0] if len(unknown) == 1 else ""


def _value_columns(scope: Scope, expression: exp.Expr) -> Iterator[tuple[exp.Column, Scope]]:
    """Yield the columns whose values an expression is made of, each with the query that it stands in."""
    from sqlglot import exp

    if isinstance(expression, exp.Column):
        yield expression, scope
    elif isinstance(expression, exp.Query) and not isinstance(expression, exp.Subquery):
        for inner in scope.subquery_scopes:
            for each in _selects(inner) if inner.expression is expression else ():
                yield from _value_columns(inner, each)
    elif isinstance(expression, (exp.Window, exp.Filter, exp.WithinGroup)):
        yield from _value_columns(scope, expression.this)
    else:
        for each in expression.iter_expressions():
            yield from _value_columns(scope, each)


def _selects(scope: Scope) -> list[exp.Expr]:
    from sqlglot import exp

    return scope.expression.selects if isinstance(scope.expression, exp.Query) else []


def _text(scope: Scope, expression: exp.Expr) -> str:
    """Return an expression as it reads in its query: columns name their table only where there are several."""
    from sqlglot import exp

    shown = expression.copy()
    if len(scope.selected_sources) == 1:
        for each in shown.find_all(exp.Column):
            each.set("table", None)
    return split_namespaces(shown).sql(dialect=DIALECT, comments=False)
