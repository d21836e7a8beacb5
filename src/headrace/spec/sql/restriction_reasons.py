"""Explain why rows of a table can't be looked up by columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.spec.sql.queries import DIALECT
from headrace.spec.sql.query_blocks import Block, Blocks, BlockSource

if TYPE_CHECKING:
    from sqlglot import exp
    from sqlglot.optimizer.scope import Scope


def where_found(node: exp.Expr) -> str:
    """Return `line 12: ` for the first known line of a part of a query, or an empty text."""
    from sqlglot import exp

    lines = [name.meta["line"] for name in node.find_all(exp.Identifier) if "line" in name.meta]
    return f"line {min(lines)}: " if lines else ""


def why_not_joined(block: Block, source: BlockSource) -> str:
    """Return why a source can't be looked up by columns of the sources before it."""
    from sqlglot import exp

    where = where_found(source.node)
    if source.kind == "other":
        return f"{where}a RIGHT, FULL or NATURAL JOIN keeps unmatched rows, or joins by unknown columns"
    if not source.on:
        return f"{where}a cross join has no condition"
    for condition in source.on:
        if condition.find(exp.NullSafeEQ):
            return f"{where}<=> matches nulls, which can't be looked up"
        if condition.find(exp.Or):
            return f"{where}the join condition contains OR"
    if any(isinstance(condition, exp.EQ) for condition in source.on):
        return f"{where}the join condition compares expressions, not plain columns"
    return f"{where}the join condition has no equality"


def why_no_origin(relation: exp.Table | Scope | None, name: str, blocks: Blocks) -> str:
    """Return why the values of a query's column can't be traced to a table's column."""
    from sqlglot.optimizer.scope import Scope

    block = blocks.of(relation) if isinstance(relation, Scope) else None
    expression = block.outputs.get(name) if block else None
    if block is None or expression is None:
        return f'the values of the join column "{name}" don\'t come from a single table'
    column = block.plain(expression)
    if column:
        return why_no_origin(block.relation(column.alias), column.name, blocks)
    text = expression.sql(dialect=DIALECT, comments=False)
    return f'{where_found(expression)}the join column "{name}" is an expression: {text}'
