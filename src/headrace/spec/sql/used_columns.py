"""Find the columns of its inputs that a query reads. Changes of other columns do not affect its result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from headrace.spec.model.pipeline import TableName
from headrace.spec.sql.queries import ParsedQuery, qualify_query, table_of

if TYPE_CHECKING:
    from sqlglot import exp
    from sqlglot.optimizer.scope import Scope


def used_columns(parsed: ParsedQuery, *, known: Mapping[TableName, Sequence[str]]) -> Mapping[TableName, tuple[str, ...]]:
    """Return the columns that a query reads of each input. The result is empty if they can't be determined.

    `known` are the columns of all its inputs.
    """
    from sqlglot import exp
    from sqlglot.errors import SqlglotError
    from sqlglot.optimizer.scope import traverse_scope

    tables = {str(reference.table).lower(): reference.table for reference in parsed.query.references}
    if not all(table in known for table in tables.values()):
        return {}
    try:
        tree = qualify_query(parsed, known=known, strict=False, aliases=False)
        scopes = traverse_scope(tree)
    except SqlglotError:
        return {}
    if any(join.args.get("using") or join.method for join in tree.find_all(exp.Join)) or _has_rows_as_values(tree):
        return {}
    spelled = {table: {name.lower(): name for name in columns} for table, columns in known.items()}
    used: dict[TableName, set[str]] = {table: set() for table in tables.values()}
    visited: set[int] = set()
    for scope in scopes:
        for column in scope.columns:
            visited.add(id(column))
            if not column.table and column.name.lower() in _aliases(scope):
                continue  # no input has the column, so it is an alias in the SELECT list
            source = _source(scope, column)
            if source is None:
                return {}
            table = tables.get(str(table_of(source)).lower()) if isinstance(source, exp.Table) else None
            if table is not None:
                used[table].add(column.name.lower())
    if any(id(column) not in visited for column in tree.find_all(exp.Column)):
        return {}
    return {
        table: tuple(name for lower, name in spelled[table].items() if lower in names)
        for table, names in used.items()
        if names <= spelled[table].keys()
    }


def _has_rows_as_values(tree: exp.Query) -> bool:
    """Return whether a star stands for all columns as values, as in struct(*) but not in count(*)."""
    from sqlglot import exp

    return any(not isinstance(star.parent, exp.Count) for star in tree.find_all(exp.Star))


def _aliases(scope: Scope) -> set[str]:
    from sqlglot import exp

    selects = scope.expression.selects if isinstance(scope.expression, exp.Query) else []
    return {select.alias.lower() for select in selects if isinstance(select, exp.Alias)}


def _source(scope: Scope, column: exp.Column) -> exp.Table | Scope | None:
    """Return the source of a column in its own query or an enclosing one."""
    around: Scope | None = scope
    while around is not None:
        for name, (_, source) in around.selected_sources.items():
            if name.lower() == column.table.lower():
                return source
        around = around.parent
    return None
