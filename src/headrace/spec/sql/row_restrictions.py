"""Determine which rows of a query's inputs can affect its result, by the values of their columns.

A restriction of a relation says that only rows with certain values in certain columns affect the result: other rows may be
missing, or be wrong in their other columns. An equality in a join or in WHERE creates a restriction. Restrictions are pushed
down from the result to the tables, through operators that never mix rows with different values of the restricted columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headrace.spec.sql.operators import Carried, carried_columns, cuts_rows
from headrace.spec.sql.query_blocks import Block, BlockColumn, Blocks, BlockSource, equal_sides
from headrace.spec.sql.restriction_reasons import where_found, why_not_joined
from headrace.spec.sql.value_origins import output_names

if TYPE_CHECKING:
    from sqlglot import exp
    from sqlglot.optimizer.scope import Scope

_MOST_VISITS = 2_000
"""The maximum number of visited SELECTs, counting a CTE as often as it is read. The analysis of larger queries stops."""


@dataclass(frozen=True)
class Values:
    """The values in the columns of a block's source. Nulls never match."""

    block: Block
    alias: str


@dataclass(frozen=True)
class Restriction:
    """Only rows whose columns have these values are needed: together, those of one row of `values`, by its column names.

    `values` is None if the values are given from outside, such as the touched keys of a result. Null is then a value, too.
    """

    values: Values | None
    pairs: tuple[tuple[BlockColumn, str], ...]

    def keep(self, alias: str) -> Restriction | None:
        return self.replace((column, value) for column, value in self.pairs if column.alias == alias)

    def replace(self, pairs: Iterator[tuple[BlockColumn, str]]) -> Restriction | None:
        """Return the restriction by other columns, or None if none are left. Fewer columns keep more rows, which is safe."""
        chosen = tuple(dict.fromkeys(pairs))
        return Restriction(self.values, chosen) if chosen else None


@dataclass(frozen=True)
class Scan:
    """A read of a table in a query, and its restrictions, any one of which may be applied.

    Without restrictions, `reason` says why. With `is_mixed`, given values could not be pushed down, since rows were mixed.
    """

    table: exp.Table
    restrictions: tuple[Restriction, ...]
    reason: str
    is_mixed: bool


@dataclass
class RestrictionFinder:
    """Push restrictions down a query. A CTE is walked for each of its readers, since each restricts it differently."""

    blocks: Blocks
    scans: list[Scan] = field(default_factory=list)
    _visits: int = 0

    @property
    def is_cut_short(self) -> bool:
        return self._visits > _MOST_VISITS

    def walk(self, scope: Scope, restrictions: Sequence[Restriction], reason: str, *, is_mixed: bool = False) -> None:
        """Record every scan below a query whose result has these restrictions, or none because of `reason`.

        With `is_mixed`, rows of different values were mixed above. Parts that can't be analysed get no scan.
        """
        from sqlglot import exp

        self._visits += 1
        if self.is_cut_short:
            return
        block = self.blocks.of(scope)
        if block is not None:
            carried = carried_columns(block)
            below = [down for restriction in restrictions if (down := _below_select(restriction, block, carried))]
            if restrictions and not below:
                names = [column.name for restriction in restrictions for column, _ in restriction.pairs]
                reason = carried.reason or carried.why_not(block, names)
            self._walk_block(block, below, reason, is_mixed=is_mixed or _mixes(restrictions, below, block))
        elif isinstance(scope.expression, exp.SetOperation):
            carries = (
                isinstance(scope.expression, exp.Union) and not scope.expression.args.get("by_name") and not cuts_rows(scope)
            )
            if not carries:
                reason = f"{where_found(scope.expression)}{type(scope.expression).__name__.upper()} or LIMIT mixes rows"
            for part in scope.set_operation_scopes:
                part_names = dict(zip(output_names(scope), output_names(part), strict=False))
                renamed = [_rename(restriction, part_names) for restriction in restrictions] if carries else []
                mixed = is_mixed or (bool(restrictions) and not carries)
                self.walk(part, [restriction for restriction in renamed if restriction], reason, is_mixed=mixed)

    def _walk_block(self, block: Block, restrictions: list[Restriction], reason: str, *, is_mixed: bool) -> None:
        """Push restrictions of a block's joined rows down to its sources, the last join first."""
        restrictions = [*restrictions, *_from_where(block, self.blocks)]
        for source in reversed(block.sources[1:]):
            own = [*_from_join(block, source), *_to_joined(block, source, restrictions)]
            why = reason if source.kind == "inner" and not source.on and reason else why_not_joined(block, source)
            self._enter(source, own, why, is_mixed=is_mixed)
            if source.kind == "other" and any(restriction.values is None for restriction in restrictions):
                is_mixed = True
            if source.kind == "other":
                reason = why_not_joined(block, source)
            restrictions = [*_to_earlier(block, source, restrictions), *_by_joined(block, source)]
        if block.sources:
            first = block.sources[0]
            own = [first_restriction for restriction in restrictions if (first_restriction := restriction.keep(first.alias))]
            self._enter(first, own, reason or f"{where_found(first.node)}no join restricts its columns", is_mixed=is_mixed)
        for scope in block.scope.subquery_scopes:
            why = f"{where_found(scope.expression)}no equality of plain columns correlates the subquery"
            self.walk(scope, list(_from_in(block, scope)), why, is_mixed=is_mixed)

    def _enter(self, source: BlockSource, restrictions: Sequence[Restriction], reason: str, *, is_mixed: bool) -> None:
        from sqlglot import exp

        if isinstance(source.relation, exp.Table):
            self.scans.append(Scan(source.relation, tuple(restrictions), reason, is_mixed))
        elif source.relation is not None:
            outputs = [
                restriction.replace((BlockColumn("", c.name), v) for c, v in restriction.pairs) for restriction in restrictions
            ]
            self.walk(source.relation, [restriction for restriction in outputs if restriction], reason, is_mixed=is_mixed)


def _mixes(restrictions: Sequence[Restriction], below: Sequence[Restriction], block: Block) -> bool:
    """Return whether a block has plain columns of given values, and mixes rows with different values of all of them."""
    given = [restriction for restriction in restrictions if restriction.values is None]
    if not given or any(restriction.values is None for restriction in below):
        return False
    return cuts_rows(block.scope) or any(block.plain(block.outputs.get(c.name)) for r in given for c, _ in r.pairs)


def _below_select(restriction: Restriction, block: Block, carried: Carried) -> Restriction | None:
    columns = [(block.plain(block.outputs.get(column.name)), value) for column, value in restriction.pairs]
    return restriction.replace((column, value) for column, value in columns if column and carried.has(column))


def _rename(restriction: Restriction, names: dict[str, str]) -> Restriction | None:
    return restriction.replace(
        (BlockColumn("", names[column.name]), value) for column, value in restriction.pairs if column.name in names
    )


def _grouped(pairs: Iterator[tuple[BlockColumn, BlockColumn]], block: Block) -> Iterator[Restriction]:
    """Yield a restriction for each source whose columns these columns are equal to."""
    by_alias: dict[str, dict[BlockColumn, str]] = {}
    for column, other in pairs:
        for twin in block.with_twins(other):
            if twin.alias != column.alias:
                by_alias.setdefault(twin.alias, {}).setdefault(column, twin.name)
    for alias, columns in by_alias.items():
        yield Restriction(Values(block, alias), tuple(columns.items()))


def _from_where(block: Block, blocks: Blocks) -> Iterator[Restriction]:
    """Yield the restrictions of joined rows from equalities in WHERE."""
    sides = [pair for left, right in equal_sides(block.where) for pair in ((left, right), (right, left))]
    inner = [(block.column(left), block.column(right)) for left, right in sides]
    by_target: dict[str, list[tuple[BlockColumn, BlockColumn]]] = {}
    for column, other in inner:
        if column and other and column.alias != other.alias:
            by_target.setdefault(column.alias, []).append((column, other))
    for pairs in by_target.values():
        yield from _grouped(iter(pairs), block)
    outer: dict[tuple[str, str], dict[BlockColumn, str]] = {}
    for own_side, other_side in sides:
        column, alias = block.column(own_side), block.outer_alias(other_side)
        if column and alias:
            outer.setdefault((column.alias, alias), {})[column] = other_side.unnest().name.lower()
    for (_, alias), columns in outer.items():
        enclosing = _enclosing(block, alias, blocks)
        if enclosing:
            yield Restriction(Values(enclosing, alias), tuple(columns.items()))


def _enclosing(block: Block, alias: str, blocks: Blocks) -> Block | None:
    """Return the nearest enclosing query with a source of this name."""
    scope = block.scope.parent
    while scope is not None:
        outer = blocks.of(scope)
        if outer is not None and alias in {name.lower() for name in scope.selected_sources}:
            return outer if outer.source(alias) else None
        scope = scope.parent
    return None


def _from_join(block: Block, source: BlockSource) -> Iterator[Restriction]:
    """Yield the restrictions of a joined source from its ON. A right or full join keeps all rows, so it has none."""
    if source.kind != "other":
        yield from _grouped(block.equalities(source), block)


def _to_joined(block: Block, source: BlockSource, restrictions: Sequence[Restriction]) -> Iterator[Restriction]:
    """Yield the restrictions of a joined source that follow from those of the joined rows.

    A left join returns nulls without a match. If null is a restricted value, the source's own columns don't restrict it.
    """
    equal = list(block.equalities(source))
    for restriction in restrictions if source.kind != "other" else ():
        own = source.kind == "inner" or (source.kind == "left" and restriction.values is not None)
        pairs = [(c, v) for c, v in restriction.pairs if own and c.alias == source.alias]
        pairs += [(own_column, v) for c, v in restriction.pairs for own_column, other_column in equal if other_column == c]
        if down := restriction.replace(iter(pairs)):
            yield down


def _to_earlier(block: Block, source: BlockSource, restrictions: Sequence[Restriction]) -> Iterator[Restriction]:
    """Yield the restrictions of the rows before a join that follow from those of the joined rows."""
    equal = list(block.equalities(source))
    for restriction in restrictions if source.kind != "other" else ():
        matched = source.kind == "inner" or (source.kind == "left" and restriction.values is not None)
        pairs = [(c, v) for c, v in restriction.pairs if c.alias != source.alias]
        pairs += [
            (other_column, v) for c, v in restriction.pairs for own_column, other_column in equal if matched and own_column == c
        ]
        if down := restriction.replace(iter(pairs)):
            yield down


def _by_joined(block: Block, source: BlockSource) -> Iterator[Restriction]:
    """Yield the restrictions of the rows before a join that drops rows without a match."""
    by_target: dict[str, dict[BlockColumn, str]] = {}
    for own_column, other_column in block.equalities(source) if source.kind in ("inner", "semi") else ():
        by_target.setdefault(other_column.alias, {}).setdefault(other_column, own_column.name)
    for columns in by_target.values():
        yield Restriction(Values(block, source.alias), tuple(columns.items()))


def _from_in(block: Block, scope: Scope) -> Iterator[Restriction]:
    """Yield the restrictions of a query's rows from `column IN (query)` in WHERE. NOT IN also depends on nulls."""
    from sqlglot import exp

    for condition in block.where:
        query = condition.args.get("query") if isinstance(condition, exp.In) else None
        if query is None or query.unnest() is not scope.expression or cuts_rows(scope):
            continue
        left = condition.this.unnest()
        sides = left.expressions if isinstance(left, exp.Tuple) else [left]
        names = zip(output_names(scope), sides, strict=False)
        columns = [(BlockColumn("", name), column) for name, side in names if (column := block.column(side))]
        yield from _grouped(iter(columns), block)
