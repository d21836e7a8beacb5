"""Which rows of a query's inputs can matter, told by values of their columns and followed from its result down to its tables.

A restriction of a relation says that only its rows with certain values in certain columns matter: rows with other values may be
missing, or be wrong in their other columns, and the result stays the same. A join by equality makes one, as does an equality in
WHERE. A restriction goes down through an operator that never mixes rows of different values of the restricted columns.
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
"""SELECTs that are visited, counting a CTE as often as it is read. A query that needs more is not followed."""


@dataclass(frozen=True)
class Values:
    """The values that a source of a block has in its columns; nulls never match."""

    block: Block
    alias: str


@dataclass(frozen=True)
class Restriction:
    """Only rows matter whose columns have these values: together, those of one row of `values`, named as they are there.

    `values` are None where they are given from outside, as the touched keys of a result are; there null is a value as well.
    """

    values: Values | None
    pairs: tuple[tuple[BlockColumn, str], ...]

    def keep(self, alias: str) -> Restriction | None:
        return self.replace((column, value) for column, value in self.pairs if column.alias == alias)

    def replace(self, pairs: Iterator[tuple[BlockColumn, str]]) -> Restriction | None:
        """Return the restriction by other columns, or None where none are left. Fewer columns keep more rows: that is safe."""
        chosen = tuple(dict.fromkeys(pairs))
        return Restriction(self.values, chosen) if chosen else None


@dataclass(frozen=True)
class Scan:
    """A place where a query reads a table, and its restrictions, of which any one may be applied.

    Without any, `reason` says why. `is_mixed` says that given values could not be followed, since rows were mixed.
    """

    table: exp.Table
    restrictions: tuple[Restriction, ...]
    reason: str
    is_mixed: bool


@dataclass
class RestrictionFinder:
    """Walks down a query. A CTE is walked through wherever it is read, since it is restricted by each reader in its own way."""

    blocks: Blocks
    scans: list[Scan] = field(default_factory=list)
    _visits: int = 0

    @property
    def is_cut_short(self) -> bool:
        return self._visits > _MOST_VISITS

    def walk(self, scope: Scope, restrictions: Sequence[Restriction], reason: str, *, is_mixed: bool = False) -> None:
        """Note every scan below a query whose result is restricted, or is not because of `reason`.

        `is_mixed` says that rows of different values were mixed above. What can't be read is left out, and has no scan.
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
                theirs = dict(zip(output_names(scope), output_names(part), strict=False))
                renamed = [_rename(restriction, theirs) for restriction in restrictions] if carries else []
                mixed = is_mixed or (bool(restrictions) and not carries)
                self.walk(part, [each for each in renamed if each], reason, is_mixed=mixed)

    def _walk_block(self, block: Block, restrictions: list[Restriction], reason: str, *, is_mixed: bool) -> None:
        """Take restrictions of all joined rows of a block down to its sources, the last join first."""
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
            own = [kept for restriction in restrictions if (kept := restriction.keep(first.alias))]
            self._enter(first, own, reason or f"{where_found(first.node)}nothing joins it by its columns", is_mixed=is_mixed)
        for scope in block.scope.subquery_scopes:
            why = f"{where_found(scope.expression)}the subquery is not tied to its rows by an equality of plain columns"
            self.walk(scope, list(_from_in(block, scope)), why, is_mixed=is_mixed)

    def _enter(self, source: BlockSource, restrictions: Sequence[Restriction], reason: str, *, is_mixed: bool) -> None:
        from sqlglot import exp

        if isinstance(source.relation, exp.Table):
            self.scans.append(Scan(source.relation, tuple(restrictions), reason, is_mixed))
        elif source.relation is not None:
            outputs = [
                restriction.replace((BlockColumn("", c.name), v) for c, v in restriction.pairs) for restriction in restrictions
            ]
            self.walk(source.relation, [each for each in outputs if each], reason, is_mixed=is_mixed)


def _mixes(restrictions: Sequence[Restriction], below: Sequence[Restriction], block: Block) -> bool:
    """Return whether a block takes plain columns of given values and mixes rows of different values of all of them."""
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
    """Return a restriction for each source that columns are equal to columns of."""
    by_alias: dict[str, dict[BlockColumn, str]] = {}
    for column, theirs in pairs:
        for twin in block.with_twins(theirs):
            if twin.alias != column.alias:
                by_alias.setdefault(twin.alias, {}).setdefault(column, twin.name)
    for alias, columns in by_alias.items():
        yield Restriction(Values(block, alias), tuple(columns.items()))


def _from_where(block: Block, blocks: Blocks) -> Iterator[Restriction]:
    """Return what equalities in WHERE say of joined rows: rows that lack one are dropped."""
    sides = [pair for left, right in equal_sides(block.where) for pair in ((left, right), (right, left))]
    inner = [(block.column(mine), block.column(theirs)) for mine, theirs in sides]
    by_target: dict[str, list[tuple[BlockColumn, BlockColumn]]] = {}
    for column, other in inner:
        if column and other and column.alias != other.alias:
            by_target.setdefault(column.alias, []).append((column, other))
    for pairs in by_target.values():
        yield from _grouped(iter(pairs), block)
    outer: dict[tuple[str, str], dict[BlockColumn, str]] = {}
    for mine, theirs in sides:
        column, alias = block.column(mine), block.outer_alias(theirs)
        if column and alias:
            outer.setdefault((column.alias, alias), {})[column] = theirs.unnest().name.lower()
    for (_, alias), columns in outer.items():
        enclosing = _enclosing(block, alias, blocks)
        if enclosing:
            yield Restriction(Values(enclosing, alias), tuple(columns.items()))


def _enclosing(block: Block, alias: str, blocks: Blocks) -> Block | None:
    """Return the nearest query around a block that has a source of this name."""
    scope = block.scope.parent
    while scope is not None:
        outer = blocks.of(scope)
        if outer is not None and alias in {name.lower() for name in scope.selected_sources}:
            return outer if outer.source(alias) else None
        scope = scope.parent
    return None


def _from_join(block: Block, source: BlockSource) -> Iterator[Restriction]:
    """Return what a join's own equalities say of the rows that are joined; a right or full join keeps all of them."""
    if source.kind != "other":
        yield from _grouped(block.equalities(source), block)


def _to_joined(block: Block, source: BlockSource, restrictions: Sequence[Restriction]) -> Iterator[Restriction]:
    """Return what restrictions of the joined rows say of the source that is joined.

    A left join makes nulls of what doesn't match, so where null is a value that matters, the source's own columns tell nothing.
    """
    equal = list(block.equalities(source))
    for restriction in restrictions if source.kind != "other" else ():
        own = source.kind == "inner" or (source.kind == "left" and restriction.values is not None)
        pairs = [(c, v) for c, v in restriction.pairs if own and c.alias == source.alias]
        pairs += [(mine, v) for c, v in restriction.pairs for mine, theirs in equal if theirs == c]
        if down := restriction.replace(iter(pairs)):
            yield down


def _to_earlier(block: Block, source: BlockSource, restrictions: Sequence[Restriction]) -> Iterator[Restriction]:
    """Return what restrictions of the joined rows say of the rows that the source is joined to."""
    equal = list(block.equalities(source))
    for restriction in restrictions if source.kind != "other" else ():
        matched = source.kind == "inner" or (source.kind == "left" and restriction.values is not None)
        pairs = [(c, v) for c, v in restriction.pairs if c.alias != source.alias]
        pairs += [(theirs, v) for c, v in restriction.pairs for mine, theirs in equal if matched and mine == c]
        if down := restriction.replace(iter(pairs)):
            yield down


def _by_joined(block: Block, source: BlockSource) -> Iterator[Restriction]:
    """Return what a join that drops rows without a match says of the rows before it."""
    by_target: dict[str, dict[BlockColumn, str]] = {}
    for mine, theirs in block.equalities(source) if source.kind in ("inner", "semi") else ():
        by_target.setdefault(theirs.alias, {}).setdefault(theirs, mine.name)
    for columns in by_target.values():
        yield Restriction(Values(block, source.alias), tuple(columns.items()))


def _from_in(block: Block, scope: Scope) -> Iterator[Restriction]:
    """Return what `column IN (query)` says of the query's rows, where WHERE requires it. NOT IN also depends on its nulls."""
    from sqlglot import exp

    for condition in block.where:
        query = condition.args.get("query") if isinstance(condition, exp.In) else None
        if query is None or query.unnest() is not scope.expression or cuts_rows(scope):
            continue
        left = condition.this.unnest()
        asked = left.expressions if isinstance(left, exp.Tuple) else [left]
        names = zip(output_names(scope), asked, strict=False)
        columns = [(BlockColumn("", name), column) for name, side in names if (column := block.column(side))]
        yield from _grouped(iter(columns), block)
