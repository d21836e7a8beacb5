"""Determine the lookups that a table follows: the columns that map a lookup's changed rows to rows of the drivers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from headrace.spec.model.layers import LayerTable, Query
from headrace.spec.model.pipeline import TableName
from headrace.spec.problems import Problems, suggest
from headrace.spec.sql.access_paths import access_paths
from headrace.spec.sql.join_paths import Follows, JoinPath, Route, plain_column
from headrace.spec.sql.mixed_rows import BY_KEY, has_plain_keys
from headrace.spec.sql.queries import parse_query

if TYPE_CHECKING:
    from headrace.errors import SpecError

_ROW_BY_ROW = ("upsert", "history", "aggregate", "entities")
"""The kinds that can rebuild individual rows."""


def follow_lookups(
    table: LayerTable,
    *,
    known: Mapping[TableName, Sequence[str]],
    by_name: Mapping[TableName, LayerTable],
    problems: Problems,
) -> Follows:
    """Return the lookups whose changes a table follows, with routes. A lookup that can't be followed is an error in `problems`.

    `known` are the columns of inputs, as far as they are known without an engine, `by_name` the tables of the pipeline.
    """
    joined = (*table.lookups, *table.reread)
    if table.traits.rewrites_all or not joined:
        return MappingProxyType({})
    wanted = [lookup for lookup in joined if lookup not in table.frozen]
    follows: dict[TableName, tuple[Route, ...] | None] = {
        lookup: None for lookup in wanted if _rebuilds_all(table, lookup, by_name)
    }
    unsafe = [name for name in table.reread if name in wanted and name not in follows]
    if unsafe and not (table.kind in BY_KEY and has_plain_keys(table, known)):
        problems.errors += [_reread_error(table, name) for name in unsafe]
    by_columns = [lookup for lookup in wanted if lookup not in (*follows, *table.reread)]
    if table.kind not in _ROW_BY_ROW:
        why = f"a table of kind {table.kind} can't rebuild individual rows"
        problems.errors += [_error(table, lookup, why) for lookup in by_columns]
    elif by_columns:
        finder = _RouteFinder.of(table, known=known)
        for lookup in by_columns:
            routes = finder.routes(lookup)
            if routes is not None:
                follows[lookup] = routes
            elif table.rebuild_on.get(lookup):
                problems.errors += _wrong_columns(table, lookup, known)
            else:
                problems.errors.append(_error(table, lookup, finder.reasons[lookup]))
    return MappingProxyType(follows)


def _rebuilds_all(table: LayerTable, lookup: TableName, by_name: Mapping[TableName, LayerTable]) -> bool:
    """Return whether any change of a lookup rebuilds all rows: it is declared, or the lookup itself rewrites all rows."""
    return table.rebuild_on.get(lookup) == {} or (lookup in by_name and by_name[lookup].traits.rewrites_all)


@dataclass(frozen=True)
class _RouteFinder:
    """The join paths of each lookup: derived from the query, or None with a reason, and declared in `rebuild_on`."""

    table: LayerTable
    paths: Mapping[TableName, tuple[JoinPath, ...] | None]
    reasons: dict[TableName, str]
    declared: Mapping[TableName, tuple[JoinPath, ...]]

    @classmethod
    def of(cls, table: LayerTable, *, known: Mapping[TableName, Sequence[str]]) -> _RouteFinder:
        paths: Mapping[TableName, tuple[JoinPath, ...] | None] = dict.fromkeys(table.lookups)
        reasons = dict.fromkeys(table.lookups, "the joins of a Python function can't be analysed")
        if isinstance(table.source, Query):
            parsed = parse_query(table.source.text, place=table.place)
            inputs = {name: known[name] for name in table.inputs if name in known}
            read = access_paths(parsed, known=inputs, casts=True)
            paths, reasons = read.lookups, dict(read.reasons)
        declared = {lookup: tuple(_declared(table, lookup, pairs, known)) for lookup, pairs in table.rebuild_on.items()}
        return cls(table, paths, reasons, declared)

    def routes(self, lookup: TableName) -> tuple[Route, ...] | None:
        """Return the routes from a lookup to the drivers, or None if no columns map its rows to theirs."""
        routes = self._derived(lookup)
        if routes is None and self.declared.get(lookup):
            return tuple((path,) for path in self.declared[lookup])
        return routes

    def _derived(self, lookup: TableName) -> tuple[Route, ...] | None:
        paths = self.paths[lookup]
        if paths is None:
            return None
        routes: dict[Route, None] = {}
        for path in paths:
            further = self._continue(path)
            if further is None:
                self.reasons[lookup] = f"it is joined to {path.source}, and there {self.reasons[path.source]}"
                return None
            routes |= dict.fromkeys(further)
        return tuple(routes)

    def _continue(self, path: JoinPath) -> tuple[Route, ...] | None:
        if path.source in self.table.drivers:
            return ((path,),)
        further = self.routes(path.source)
        return None if further is None else tuple((path, *route) for route in further)


def _declared(
    table: LayerTable, lookup: TableName, pairs: Mapping[str, str], known: Mapping[TableName, Sequence[str]]
) -> Iterator[JoinPath]:
    """Yield the path to each driver that has the declared columns, as far as its columns are known."""
    if not pairs or not {*pairs} <= {*known.get(lookup, pairs)}:
        return
    for driver in table.drivers:
        if {*pairs.values()} <= {*known.get(driver, pairs.values())}:
            yield JoinPath(lookup, tuple(pairs), driver, tuple(pairs.values()), nulls_match=True)


def _wrong_columns(table: LayerTable, lookup: TableName, known: Mapping[TableName, Sequence[str]]) -> Iterator[SpecError]:
    pairs = table.rebuild_on[lookup]
    for column in pairs:
        if column not in known.get(lookup, pairs):
            hint = suggest(column, known[lookup], plural="Columns")
            yield table.error(
                f'rebuild_on: "{column}" is not a column of {lookup}', at="rebuild_on", fix=f"{hint} Fix the name"
            )
            return
    drivers = " or ".join(map(str, table.drivers))
    names = ", ".join(f'"{column}"' for column in pairs.values())
    columns = dict.fromkeys(column for driver in table.drivers for column in known[driver])
    hint = suggest(next(iter(pairs.values())), list(columns), plural="Columns")
    yield table.error(f"rebuild_on: {drivers} has no columns {names}", at="rebuild_on", fix=f"{hint} Fix the name")


def _error(table: LayerTable, lookup: TableName, why: str) -> SpecError:
    lines = (
        {reference.table: reference.line for reference in table.source.references} if isinstance(table.source, Query) else {}
    )
    declare = f"rebuild_on: {{{lookup}: {{its_column: driver_column}}}}, or with `all` instead of the columns"
    if table.kind not in _ROW_BY_ROW:
        declare = f"rebuild_on: {{{lookup}: all}}"
    return table.error(
        f"changes of {lookup} can't be followed: {why}",
        at=lines.get(lookup, ""),
        fix=f"Declare what a change rebuilds ({declare}), or join the lookup as of each build (frozen: [{lookup}])",
    )


def _reread_error(table: LayerTable, driver: TableName) -> SpecError:
    lines = (
        [reference.line for reference in table.source.references if reference.table == driver]
        if isinstance(table.source, Query)
        else []
    )
    if table.kind in BY_KEY:
        why = "the query reads it twice, and its rows are not joined by the table's keys alone"
    else:
        why = f"the query reads it twice, and a table of kind {table.kind} can't follow that"
    return table.error(
        f"changes of {driver} can't be followed: {why}",
        at=lines[-1] if lines else "",
        fix=f"Move one of the reads to a separate table, rebuild all rows with each change (rebuild_on: {{{driver}: all}}), "
        f"or join it as of each build (frozen: [{driver}])",
    )


def route_columns(follows: Follows, lookup: TableName) -> tuple[str, ...]:
    """Return the columns of a lookup that any route uses."""
    paths = (path for routes in follows.values() for route in routes or () for path in route if path.table == lookup)
    return tuple(dict.fromkeys(plain_column(column) for path in paths for column in path.columns))
