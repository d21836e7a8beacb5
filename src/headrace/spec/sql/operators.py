"""Determine the columns of a SELECT for which it never mixes rows with different values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.spec.sql.query_blocks import Block, BlockColumn
from headrace.spec.sql.restriction_reasons import where_found

if TYPE_CHECKING:
    from sqlglot import exp
    from sqlglot.optimizer.scope import Scope

_ROW_BY_ROW = frozenset(
    ("with_", "expressions", "hint", "distinct", "from_", "laterals", "joins", "where", "group", "having", "qualify", "windows")
    + ("distribute", "sort", "cluster", "order")
)
"""The supported clauses of a SELECT. Any other clause, such as LIMIT, may mix rows in any way."""
_CUTS = ("limit", "offset", "sample", "pivots", "joins", "laterals", "where", "group")
_DEPENDS_ON_PLACE = frozenset(
    (
        "monotonically_increasing_id",
        "spark_partition_id",
        "input_file_name",
        "input_file_block_start",
        "input_file_block_length",
    )
)
"""Functions whose value depends on the physical location of a row. Random functions are checked separately."""


@dataclass(frozen=True)
class Carried:
    """The columns of a block's sources by which restrictions can be pushed down, None for all. `reason` says why none can."""

    columns: frozenset[BlockColumn] | None
    reason: str = ""
    narrowed_by: str = ""

    def has(self, column: BlockColumn) -> bool:
        return self.columns is None or column in self.columns

    def why_not(self, block: Block, names: Sequence[str]) -> str:
        """Return why restrictions by these outputs can't be pushed down."""
        for name in names:
            expression = block.outputs.get(name)
            if expression is not None and not block.plain(expression):
                return f'{where_found(expression)}"{name}" is an expression, not a plain column'
        return self.narrowed_by or f"{where_found(block.select)}its columns are unknown"


def carried_columns(block: Block) -> Carried:
    """Return the columns of a block for which it never mixes rows with different values."""
    from sqlglot import exp

    select, where = block.select, where_found(block.select)
    others = [name for name, value in select.args.items() if value and name not in _ROW_BY_ROW]
    if others or cuts_rows(block.scope):
        named = others[0].strip("_").upper() if others else "LIMIT"
        return Carried(frozenset(), f"{where}{named} selects among rows of all values")
    distinct = select.args.get("distinct")
    if distinct is not None and distinct.args.get("on"):
        return Carried(frozenset(), f"{where}DISTINCT ON selects among rows of all values")
    if any(_depends_on_place(function) for function in block.scope.find_all(exp.Func)):
        return Carried(frozenset(), f"{where}a function's value depends on more than its row")
    columns, narrowed_by = None, ""
    if select.args.get("group") or select.args.get("having"):
        grouped = _group_keys(block)
        if grouped is None:
            return Carried(frozenset(), f"{where}rows are grouped in several ways, or all together")
        columns, narrowed_by = grouped, f"{where_found(select.args['group'])}it is not a key of GROUP BY"
    for window in block.windows:
        partition = frozenset(column for part in window.args.get("partition_by") or () if (column := block.plain(part)))
        columns = partition if columns is None else columns & partition
        narrowed_by = f"{where_found(window) or where}it is not in the PARTITION BY of a window function"
    return Carried(columns, "", narrowed_by)


def cuts_rows(scope: Scope) -> bool:
    """Return whether a query, or the parentheses around it, has a LIMIT or another clause that a plain union lacks."""
    from sqlglot import exp

    node: exp.Expr | None = scope.expression
    names = _CUTS if not isinstance(node, exp.Select) else ("limit", "offset", "sample", "pivots")
    if node is None or any(node.args.get(name) for name in names):
        return True
    node = node.parent
    while isinstance(node, exp.Subquery):
        if any(node.args.get(name) for name in _CUTS):
            return True
        node = node.parent
    return False


def _group_keys(block: Block) -> frozenset[BlockColumn] | None:
    """Return the plain columns among the keys of GROUP BY, or None for grouping sets and for HAVING without GROUP BY."""
    from sqlglot import exp

    group = block.select.args.get("group")
    if group is None or group.find(exp.Rollup, exp.Cube, exp.GroupingSets) or group.args.get("totals"):
        return None
    keys = list(block.outputs.values()) if group.args.get("all") else list(group.expressions)
    columns = set()
    for key in keys:
        is_alias = isinstance(key, exp.Column) and not key.table
        column = block.plain(block.outputs.get(key.name.lower()) if is_alias else key)
        if column:
            columns.add(column)
    return frozenset(columns)


def _depends_on_place(function: exp.Func) -> bool:
    from sqlglot import exp

    if isinstance(function, exp.Anonymous):
        return function.name.lower() in _DEPENDS_ON_PLACE
    return isinstance(function, (exp.Rand, exp.Randn, exp.Uuid, exp.Shuffle, exp.Randstr, exp.Uniform))
