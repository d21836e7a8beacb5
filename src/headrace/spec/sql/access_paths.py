"""Derive from a query's SQL the columns by which it looks up its inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.spec.model.pipeline import TableName
from headrace.spec.sql.join_paths import TEXT, JoinPath, plain_column
from headrace.spec.sql.queries import ParsedQuery, qualify_query, table_of
from headrace.spec.sql.query_blocks import BlockColumn, Blocks
from headrace.spec.sql.restriction_reasons import why_no_origin
from headrace.spec.sql.row_restrictions import Restriction, RestrictionFinder, Scan
from headrace.spec.sql.value_origins import Origin, OriginFinder

if TYPE_CHECKING:
    from sqlglot import exp


@dataclass(frozen=True)
class AccessPaths:
    """The join paths from a query's drivers to its lookups.

    Rows of a lookup that match none of its paths don't affect the result. None means that all rows of a lookup are needed, and
    `reasons` says why. `order` contains all lookups, each after the sources of its paths.
    """

    lookups: Mapping[TableName, tuple[JoinPath, ...] | None]
    reasons: Mapping[TableName, str]
    order: tuple[TableName, ...]


def access_paths(parsed: ParsedQuery, *, known: Mapping[TableName, Sequence[str]], casts: bool = False) -> AccessPaths:
    """Return the columns by which the lookups of a query are joined.

    `known` are the columns of its inputs. If an input is missing, unqualified columns and stars are not followed. With `casts`,
    a column cast to STRING counts as a column with the suffix `TEXT`.
    """
    reader = _Reader.of(parsed, known=known, keys=(), casts=casts)
    if reader is None:
        reasons = dict.fromkeys(parsed.lookups, "only an engine can read the query")
        return AccessPaths(dict.fromkeys(parsed.lookups), reasons, parsed.lookups)
    routes = {table: [reader.routes(scan) for scan in reader.scans[table]] for table in parsed.lookups}
    reasons = {table: reason for table in parsed.lookups if (reason := reader.why_whole(table))}
    return _choose(parsed, routes, reasons)


def key_paths(
    parsed: ParsedQuery, keys: Sequence[str], *, known: Mapping[TableName, Sequence[str]]
) -> Mapping[TableName, tuple[tuple[str, str], ...]] | None:
    """Return the columns of every driver that are keys of the result, as (column, key).

    The rows of a key are computed from the driver rows whose columns have the key's values, including nulls. A key that is not
    the same plain column wherever the driver is read is left out. All rows of a driver without keys are needed. The result is
    None if the query mixes rows of different keys, as LIMIT or a window over all rows do.
    """
    reader = _Reader.of(parsed, known=known, keys=keys)
    if reader is None or any(scan.is_mixed for table in parsed.drivers for scan in reader.scans[table]):
        return None
    return {table: reader.key_columns(table, keys) for table in parsed.drivers}


@dataclass(frozen=True)
class _Reader:
    """The scans of a query's tables, and the spelling of their names."""

    scans: Mapping[TableName, Sequence[Scan]]
    unread: frozenset[TableName]
    blocks: Blocks
    origins: OriginFinder
    spelled: Mapping[TableName, Mapping[str, str]]
    tables: Mapping[str, TableName]

    @classmethod
    def of(
        cls, parsed: ParsedQuery, *, known: Mapping[TableName, Sequence[str]], keys: Sequence[str], casts: bool = False
    ) -> _Reader | None:
        from sqlglot import exp
        from sqlglot.errors import SqlglotError
        from sqlglot.optimizer.scope import build_scope

        if _has_unclear_columns(parsed.tree):
            return None
        try:
            tree = qualify_query(parsed, known=known, strict=False, aliases=False)
            if casts:
                _name_casts(tree)
            root = build_scope(tree)
        except SqlglotError:
            return None
        if root is None:
            return None
        tables = {str(reference.table).lower(): reference.table for reference in parsed.query.references}
        spelled = {table: {name.lower(): name for name in columns} for table, columns in known.items()}
        blocks = Blocks()
        finder = RestrictionFinder(blocks)
        pairs = tuple((BlockColumn("", key.lower()), key) for key in keys)
        finder.walk(root, [Restriction(None, pairs)] if pairs else [], "")
        scans: dict[TableName, list[Scan]] = {table: [] for table in tables.values()}
        for scan in finder.scans:
            if str(table_of(scan.table)).lower() in tables:
                scans[tables[str(table_of(scan.table)).lower()]].append(scan)
        read = {id(scan.table) for scan in finder.scans}
        unread = {str(table_of(node)).lower() for node in tree.find_all(exp.Table) if id(node) not in read}
        left_out = (
            frozenset(tables.values()) if finder.is_cut_short else frozenset(tables[name] for name in unread if name in tables)
        )
        return cls(scans, left_out, blocks, OriginFinder(blocks), spelled, tables)

    def routes(self, scan: Scan) -> list[tuple[JoinPath, ...]]:
        """Return the routes by which to look up the rows of a scan, each of which suffices."""
        routes: dict[tuple[JoinPath, ...], None] = {}
        for restriction in scan.restrictions:
            if restriction.values is None:
                continue
            relation = restriction.values.block.relation(restriction.values.alias)
            for origins in self.origins.find(relation, tuple(dict.fromkeys(value for _, value in restriction.pairs))):
                paths = tuple(dict.fromkeys(self._path(scan, restriction, origin) for origin in origins))
                routes[tuple(path for path in paths if path)] = None
        return list(routes)

    def why_whole(self, table: TableName) -> str | None:
        """Return why all rows of a lookup are needed, or None if they are not."""
        if table in self.unread:
            return "it is read in a part of the query that can't be analysed"
        for scan in self.scans[table]:
            if not scan.restrictions:
                return scan.reason
            if not self.routes(scan):
                first = scan.restrictions[0]
                relation = first.values.block.relation(first.values.alias) if first.values else None
                return why_no_origin(relation, first.pairs[0][1], self.blocks)
        return None

    def key_columns(self, table: TableName, keys: Sequence[str]) -> tuple[tuple[str, str], ...]:
        """Return the columns of a driver that are keys of the result wherever it is read."""
        if table in self.unread or not self.scans[table]:
            return ()
        columns = []
        for scan in self.scans[table]:
            given = [restriction for restriction in scan.restrictions if restriction.values is None]
            columns.append({(column.name, key) for restriction in given for column, key in restriction.pairs})
        common = set.intersection(*columns)
        return tuple((self._spell(table, name), key) for key in keys for name, of in sorted(common) if of == key)

    def _path(self, scan: Scan, restriction: Restriction, origin: Origin) -> JoinPath:
        table, source = self._name(scan.table), self._name(origin.table)
        values = dict(origin.columns)
        pairs = {column.name: values[value] for column, value in restriction.pairs if value in values}
        columns = tuple(self._spell(table, name) for name in pairs)
        return JoinPath(table, columns, source, tuple(self._spell(source, name) for name in pairs.values()))

    def _name(self, node: exp.Table) -> TableName:
        return self.tables.get(str(table_of(node)).lower(), table_of(node))

    def _spell(self, table: TableName, column: str) -> str:
        plain = plain_column(column)
        return self.spelled.get(table, {}).get(plain, plain) + column[len(plain) :]


def _name_casts(tree: exp.Query) -> None:
    """Replace CAST(column AS STRING) in a qualified query by a column with the suffix `TEXT`."""
    from sqlglot import exp

    for cast in list(tree.find_all(exp.Cast)):
        if cast.to.this == exp.DataType.Type.TEXT and isinstance(cast.this, exp.Column) and cast.this.table:
            column = cast.this.copy()
            column.this.set("this", f"{column.name}{TEXT}")
            cast.replace(column)


def _has_unclear_columns(tree: exp.Query) -> bool:
    """Return whether sqlglot may confuse columns: USING beside outer joins that keep both sides, and recursion."""
    from sqlglot import exp

    joins = list(tree.find_all(exp.Join))
    by_name = any(join.args.get("using") or join.method for join in joins)
    return (by_name and any(join.side in ("RIGHT", "FULL") for join in joins)) or any(
        with_.args.get("recursive") for with_ in tree.find_all(exp.With)
    )


def _choose(
    parsed: ParsedQuery, routes: Mapping[TableName, Sequence[Sequence[tuple[JoinPath, ...]]]], reasons: dict[TableName, str]
) -> AccessPaths:
    """Choose the paths of every lookup so that their sources come first: drivers, then lookups that are already reached."""
    chosen: dict[TableName, tuple[JoinPath, ...] | None] = {}
    while len(chosen) < len(parsed.lookups):
        waiting = [table for table in parsed.lookups if table not in chosen]
        ready = {*parsed.drivers, *chosen}
        for table in waiting:
            usable = [[route for route in scan if all(path.source in ready for path in route)] for scan in routes[table]]
            if table not in reasons and all(usable):
                best = [min(scan, key=lambda route: _cost(route, parsed)) for scan in usable]
                chosen[table] = tuple(dict.fromkeys(path for route in best for path in route))
                break
        else:
            whole = next((table for table in waiting if table in reasons), waiting[0])
            sources = sorted({str(path.source) for scan in routes[whole] for route in scan for path in route})
            reasons.setdefault(whole, f"it is only reachable from {', '.join(sources)}, which is only reachable from it")
            chosen[whole] = None
    return AccessPaths(chosen, reasons, tuple(chosen))


def _cost(route: tuple[JoinPath, ...], parsed: ParsedQuery) -> tuple[int, int]:
    """Return the cost to minimize: the number of sources that are lookups, then the negative number of compared columns."""
    return sum(path.source not in parsed.drivers for path in route), -min((len(path.columns) for path in route), default=99)
