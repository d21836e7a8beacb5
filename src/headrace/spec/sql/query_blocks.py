"""A SELECT of a query as a list of joins: its sources in order, the equalities between them, and its plain columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from sqlglot import exp
    from sqlglot.optimizer.scope import Scope

JoinKind = Literal["inner", "left", "semi", "anti", "other"]
"""How a source is joined to those before it. `other` is a right or full join, which keeps unmatched rows."""


@dataclass(frozen=True)
class BlockColumn:
    """A column of one of a block's sources. Both names are in lower case."""

    alias: str
    name: str


@dataclass(frozen=True)
class BlockSource:
    """A source of a block. `relation` is the table or query that it reads, or None if unknown; `on` are conjuncts."""

    alias: str
    relation: exp.Table | Scope | None
    kind: JoinKind
    on: tuple[exp.Expr, ...]
    node: exp.Expr


@dataclass(frozen=True, eq=False)
class Block:
    """A SELECT and its scope."""

    scope: Scope
    select: exp.Select

    @cached_property
    def sources(self) -> tuple[BlockSource, ...]:
        """The sources in FROM and in joins, in order."""
        from_ = self.select.args.get("from_")
        if from_ is None:
            return ()
        first = from_.this
        joined = [BlockSource(first.alias_or_name.lower(), self._relation(first), "inner", (), first)]
        for join in self.select.args.get("joins") or ():
            on = tuple(conjuncts(join.args.get("on")))
            alias = join.this.alias_or_name.lower()
            joined.append(BlockSource(alias, self._relation(join.this), _kind(join), on, join))
        return tuple(joined)

    @cached_property
    def where(self) -> tuple[exp.Expr, ...]:
        where = self.select.args.get("where")
        return tuple(conjuncts(where.this if where else None))

    @cached_property
    def outputs(self) -> dict[str, exp.Expr]:
        """The expressions of the SELECT list by name, without ambiguous names."""
        names = [expression.alias_or_name.lower() for expression in self.select.selects]
        pairs = zip(names, self.select.selects, strict=True)
        return {name: expression.unalias() for name, expression in pairs if names.count(name) == 1}

    @cached_property
    def windows(self) -> tuple[exp.Window, ...]:
        """The windows in the SELECT list and in QUALIFY, with named windows resolved."""
        from sqlglot import exp

        named = {window.this.name.lower(): window for window in self.select.args.get("windows") or ()}
        windows = []
        for window in self.scope.find_all(exp.Window):
            name = window.args.get("alias")
            windows.append(named.get(name.name.lower(), window) if name else window)
        return tuple(windows)

    def source(self, alias: str) -> BlockSource | None:
        return next((source for source in self.sources if source.alias == alias), None)

    def relation(self, alias: str) -> exp.Table | Scope | None:
        source = self.source(alias)
        return source.relation if source else None

    def with_twins(self, column: BlockColumn | None) -> tuple[BlockColumn, ...]:
        return (column, *self.twins.get(column, ())) if column else ()

    def plain(self, expression: exp.Expr | None) -> BlockColumn | None:
        """Return the source's column if an expression is a plain column, else None.

        COALESCE over columns that joins make equal, which USING is rewritten to, counts as its first column.
        """
        from sqlglot import exp

        if isinstance(expression, exp.Paren):
            return self.plain(expression.this)
        if isinstance(expression, exp.Column) and not expression.args.get("db"):
            column = BlockColumn(expression.table.lower(), expression.name.lower())
            return column if self.source(column.alias) else None
        if isinstance(expression, exp.Coalesce):
            first, *others = [self.plain(part) for part in (expression.this, *expression.expressions)]
            if first and all(other and first in self.twins.get(other, ()) for other in others):
                return first
        return None

    @cached_property
    def twins(self) -> dict[BlockColumn, tuple[BlockColumn, ...]]:
        """The columns of earlier sources that equal a joined source's column in each row unless the latter is null."""
        twins: dict[BlockColumn, tuple[BlockColumn, ...]] = {}
        for source in self.sources:
            for own, other in self.equalities(source) if source.kind in ("inner", "left") else ():
                twins[own] = tuple(dict.fromkeys((*twins.get(own, ()), other, *twins.get(other, ()))))
        return twins

    def equalities(self, source: BlockSource) -> Iterator[tuple[BlockColumn, BlockColumn]]:
        """Yield the pairs of columns that a source's ON makes equal: the source's own and one of an earlier source."""
        before = [earlier.alias for earlier in self.sources[: self.sources.index(source)]]
        for left, right in equal_sides(source.on):
            sides = (self.column(left), self.column(right))
            for own, other in (sides, sides[::-1]):
                if own and other and own.alias == source.alias and other.alias in before:
                    yield own, other

    def column(self, expression: exp.Expr) -> BlockColumn | None:
        """Return the source's column if an expression is a column reference, else None."""
        from sqlglot import exp

        inner = expression.unnest()
        return self.plain(inner) if isinstance(inner, exp.Column) else None

    def outer_alias(self, expression: exp.Expr) -> str | None:
        """Return the table name of a qualified column that belongs to an enclosing query, else None."""
        from sqlglot import exp

        inner = expression.unnest()
        if not isinstance(inner, exp.Column) or inner.args.get("db") or not inner.table:
            return None
        own = {name.lower() for name in self.scope.selected_sources}
        return None if inner.table.lower() in own else inner.table.lower()

    def _relation(self, node: exp.Expr) -> exp.Table | Scope | None:
        from sqlglot import exp
        from sqlglot.optimizer.scope import Scope

        alias = node.args.get("alias")
        if any(node.args.get(name) for name in ("pivots", "sample", "joins", "laterals", "limit", "offset")):
            return None
        if alias is not None and alias.args.get("columns"):
            return None
        if not isinstance(node, (exp.Table, exp.Subquery)):
            return None
        relation = self.scope.sources.get(node.alias_or_name)
        if isinstance(relation, exp.Table):
            return relation if isinstance(relation.this, exp.Identifier) and relation is node else None
        return relation if isinstance(relation, Scope) and isinstance(relation.expression, exp.Query) else None


@dataclass
class Blocks:
    """The blocks of a query, cached."""

    _known: dict[int, Block] = field(default_factory=dict)

    def of(self, scope: Scope) -> Block | None:
        """Return the block of a scope, or None if it is not a SELECT."""
        from sqlglot import exp

        if isinstance(scope.expression, exp.Select):
            return self._known.setdefault(id(scope), Block(scope, scope.expression))
        return None


def conjuncts(condition: exp.Expr | None) -> Iterator[exp.Expr]:
    """Yield the conditions that AND combines."""
    from sqlglot import exp

    if isinstance(condition, exp.Paren):
        yield from conjuncts(condition.this)
    elif isinstance(condition, exp.And):
        yield from conjuncts(condition.left)
        yield from conjuncts(condition.right)
    elif condition is not None:
        yield condition


def equal_sides(conditions: Sequence[exp.Expr]) -> Iterator[tuple[exp.Expr, exp.Expr]]:
    """Yield both sides of each condition that is an equality."""
    from sqlglot import exp

    for condition in conditions:
        if isinstance(condition, exp.EQ):
            yield condition.left, condition.right


def _kind(join: exp.Join) -> JoinKind:
    side, kind = join.side.upper(), join.kind.upper()
    if join.args.get("using") or join.method:
        return "other"  # NATURAL or USING whose columns aren't known
    if side in ("", "LEFT") and kind in ("SEMI", "ANTI"):
        return "semi" if kind == "SEMI" else "anti"
    if side == "LEFT" and kind in ("", "OUTER"):
        return "left"
    return "inner" if not side and kind in ("", "INNER", "CROSS") else "other"
