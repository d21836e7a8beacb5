"""Trace a query's columns to the input columns and expressions that compute them."""

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
    """A column of a query: the input columns that its values derive from, and the expressions that compute it.

    A copied column has no expression. A column of a union can have several.
    """

    name: str
    sources: tuple[tuple[TableName, str], ...]
    expressions: tuple[str, ...]


def find_sources(parsed: ParsedQuery, *, known: Mapping[TableName, Sequence[str]]) -> tuple[ColumnSources, ...] | None:
    """Return a query's columns with their sources, or None if only an engine can resolve them.

    Only columns in a column's own expression count. Clauses that select or order rows do not: WHERE, ON, GROUP BY, HAVING, an
    aggregate's FILTER, a window's PARTITION BY and ORDER BY. `known` are the columns of inputs, as far as they are known.
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
    tracer = _Tracer({reference.table for reference in parsed.query.references}, known)
    return tuple(tracer.column(root, index, name) for index, name in enumerate(names))


@dataclass
class _Origins:
    sources: dict[tuple[TableName, str], None] = field(default_factory=dict)
    expressions: dict[str, None] = field(default_factory=dict)

    def add(self, other: _Origins) -> None:
        self.sources |= other.sources
        self.expressions |= other.expressions


class _Tracer:
    def __init__(self, tables: set[TableName], known: Mapping[TableName, Sequence[str]]) -> None:
        self._tables = {str(table).lower(): table for table in tables}
        self._spelled = {table: {name.lower(): name for name in names} for table, names in known.items()}
        self._done: dict[tuple[int, int], _Origins] = {}

    def column(self, scope: Scope, index: int, name: str) -> ColumnSources:
        origins = self._trace(scope, index)
        return ColumnSources(name, tuple(origins.sources), tuple(origins.expressions))

    def _trace(self, scope: Scope, index: int) -> _Origins:
        """Return the origins of the column at an index of a query, merged over the parts of a union."""
        key = (id(scope), index)
        if key in self._done:
            return self._done[key]
        origins = self._done[key] = _Origins()  # the base case of a recursive query
        if scope.set_operation_scopes:
            for part in scope.set_operation_scopes:
                origins.add(self._trace(part, index))
            return origins
        selects = _selects(scope)
        if index < len(selects):
            self._trace_expression(scope, selects[index].unalias(), origins)
        return origins

    def _trace_expression(self, scope: Scope, expression: exp.Expr, origins: _Origins) -> None:
        from sqlglot import exp

        if isinstance(expression, exp.Column):
            origins.add(self._resolve(scope, expression))
            return
        origins.expressions[_text(scope, expression)] = None
        for column, owner in _value_columns(scope, expression):
            origins.sources |= self._resolve(owner, column).sources

    def _resolve(self, scope: Scope | None, column: exp.Column) -> _Origins:
        """Return the origins of a column, looking for its source from the inner to the outer queries."""
        from sqlglot import exp
        from sqlglot.optimizer.scope import Scope

        name = column.table or (self._only_unknown(scope) if scope else "")
        while scope is not None and name not in scope.sources:
            scope = scope.parent
        source = scope.sources[name] if scope is not None else None
        origins = _Origins()
        if isinstance(source, exp.Table):
            table = self._tables.get(str(table_of(source)).lower())
            if table is not None:
                spelled = self._spelled.get(table, {})
                origins.sources[(table, spelled.get(column.name.lower(), column.name))] = None
        elif isinstance(source, Scope) and source.is_udtf:
            rows = source.expression.this or source.expression  # VALUES has no inner expression
            origins.expressions[rows.sql(dialect=DIALECT, comments=False)] = None
            for inner_column in source.expression.find_all(exp.Column):
                if inner_column.table != name:
                    origins.sources |= self._resolve(scope, inner_column).sources
        elif isinstance(source, Scope):
            names = [select.alias_or_name.lower() for select in _selects(source)]
            if column.name.lower() in names:
                origins.add(self._trace(source, names.index(column.name.lower())))
        return origins

    def _only_unknown(self, scope: Scope) -> str:
        """Return the only source with unknown columns, such as a Python table: an unresolved column must belong to it."""
        from sqlglot import exp

        unknown = [
            name
            for name, (_, source) in scope.selected_sources.items()
            if isinstance(source, exp.Table) and self._tables.get(str(table_of(source)).lower()) not in self._spelled
        ]
        return unknown[0] if len(unknown) == 1 else ""


def _value_columns(scope: Scope, expression: exp.Expr) -> Iterator[tuple[exp.Column, Scope]]:
    """Yield the columns that an expression's value derives from, each with its query."""
    from sqlglot import exp

    if isinstance(expression, exp.Column):
        yield expression, scope
    elif isinstance(expression, exp.Query) and not isinstance(expression, exp.Subquery):
        for inner in scope.subquery_scopes:
            for select in _selects(inner) if inner.expression is expression else ():
                yield from _value_columns(inner, select)
    elif isinstance(expression, (exp.Window, exp.Filter, exp.WithinGroup)):
        yield from _value_columns(scope, expression.this)
    else:
        for part in expression.iter_expressions():
            yield from _value_columns(scope, part)


def _selects(scope: Scope) -> list[exp.Expr]:
    from sqlglot import exp

    return scope.expression.selects if isinstance(scope.expression, exp.Query) else []


def _text(scope: Scope, expression: exp.Expr) -> str:
    """Return an expression as text. Columns are qualified only if the query has several sources."""
    from sqlglot import exp

    shown = expression.copy()
    if len(scope.selected_sources) == 1:
        for column in shown.find_all(exp.Column):
            column.set("table", None)
    return split_namespaces(shown).sql(dialect=DIALECT, comments=False)
