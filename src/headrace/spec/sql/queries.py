"""Parse SQL files without an engine: the tables that they read, the drivers among them, and the columns."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from headrace.spec.model.layers import Query, Reference
from headrace.spec.model.pipeline import TableName
from headrace.spec.problems import Place, Problems, suggest
from headrace.spec.sql.source_map import Location, SourceMap

if TYPE_CHECKING:
    from sqlglot import exp

    from headrace.errors import SpecError

DIALECT = "spark"
_CLASS = re.compile(r" for <class [^>]*>")
_UNRESOLVED = re.compile(r"Column '\"?(?:[^'\"]*\.)?\"?(?P<name>[^'\"]+)\"?' could not be resolved")
_UNKNOWN = re.compile(r"Unknown column: (?P<name>.+)")


@dataclass(frozen=True)
class ParsedQuery:
    """A parsed query. `columns` are the names that it returns, or None if only an engine can resolve them.

    `reread` are the drivers that the query reads outside FROM as well.
    """

    query: Query
    tree: exp.Query
    drivers: tuple[TableName, ...]
    lookups: tuple[TableName, ...]
    reread: tuple[TableName, ...]

    @property
    def columns(self) -> tuple[str, ...] | None:
        return columns_of(self.tree)


def parse_query(text: str, *, place: Place, problems: Problems | None = None, origin: SourceMap | None = None) -> ParsedQuery:
    """Return the query of a file. Anything but one SELECT over named tables raises a SpecError with line and column.

    With `problems`, errors about the names of inputs are collected there instead. `origin` maps text with expanded macros to
    the file.
    """
    from sqlglot import exp

    tree = parse_sql(text, place=place, origin=origin)
    if not isinstance(tree, exp.Query):
        raise place.error("the file contains no SELECT", line=1, fix="Write one query that returns the table's rows")
    mistakes = Problems()
    references = tuple(_references(tree, place=place, problems=mistakes, origin=origin))
    if mistakes.errors and problems is None:
        raise mistakes.errors[0]
    if problems is not None:
        problems.errors += mistakes.errors
    driving = Counter(_drivers(tree))
    lookups = tuple(dict.fromkeys(reference.table for reference in references if reference.table not in driving))
    reads = _count_reads(tree)
    reread = tuple(name for name, times in driving.items() if reads[name] > times)
    return ParsedQuery(Query(text, references, origin), tree, tuple(driving), lookups, reread)


def parse_sql(text: str, *, place: Place, origin: SourceMap | None = None, fix: str = "Fix the query") -> exp.Expr:
    """Return the statement in a text. `origin` maps text with expanded macros to the file."""
    import sqlglot

    try:
        statements = _parse(text)
    except sqlglot.ParseError as error:
        first = error.errors[0] if error.errors else {}
        description = _CLASS.sub("", str(first.get("description", error)))
        what = f'not valid SQL: {description}, at "{first.get("highlight", "")}"'
        line, column = first.get("line") or 1, first.get("col")
        if origin and column:
            location = origin.locate(_offset(text, line, column))
            line, column, what = location.line, location.column, f"{what}{location.note}"
        raise place.error(what, line=line, column=column, fix=fix) from None
    except sqlglot.TokenError as error:
        raise place.error(f"not valid SQL: {error}", line=1, fix=fix) from None
    except RecursionError:
        raise place.error("the query is nested too deeply", line=1, fix="Split it into CTEs") from None
    if len(statements) != 1:
        count = f"{len(statements)} statements" if statements else "no statement"
        raise place.error(f"the file contains {count}", line=1, fix="Write one query per file")
    return statements[0].copy()


@lru_cache(maxsize=256)
def _parse(text: str) -> tuple[exp.Expr, ...]:
    """Return the statements of a text. Cached, because several checks parse a query, and copying a tree is much faster."""
    import sqlglot

    return tuple(statement for statement in sqlglot.parse(text, dialect=DIALECT) if statement is not None)


def named_in(condition: str, *, place: Place) -> tuple[str, ...]:
    """Return the columns that a condition names, without duplicates. For a field of a struct, return the struct."""
    from sqlglot import exp

    tree = parse_sql(f"SELECT {condition}", place=place)
    if sum(1 for _ in tree.find_all(exp.Select)) > 1:
        return ()  # names in a subquery may belong to another table
    return tuple(dict.fromkeys(column.parts[0].name for column in tree.find_all(exp.Column)))


def check_columns(
    parsed: ParsedQuery, *, place: Place, known: Mapping[TableName, Sequence[str]], problems: Problems
) -> tuple[str, ...] | None:
    """Return the query's columns, or None if they can't be resolved. Unknown columns are collected in `problems`.

    `known` are the columns of inputs. If an input is missing, nothing is checked, since only an engine knows its columns.
    """
    from sqlglot.errors import OptimizeError

    if not all(reference.table in known for reference in parsed.query.references):
        return parsed.columns
    pretended: dict[TableName, tuple[str, ...]] = {table: tuple(columns) for table, columns in known.items()}
    missing: set[str] = set()
    while True:
        try:
            qualified = qualify_query(parsed, known=pretended)
            break
        except OptimizeError as error:
            match = _UNRESOLVED.search(str(error)) or _UNKNOWN.search(str(error))
            name = match["name"] if match else ""
            if not name or name in missing or _is_known(name, parsed, known):
                return None if missing else parsed.columns
        missing.add(name)
        problems.errors.append(_missing_column(name, parsed, place=place, known=known))
        # Pretend that the column exists, to find the next unknown one.
        pretended |= {table: (*pretended[table], name) for table in _owners_of(name, parsed)}
    return None if missing else parsed.columns or columns_of(qualified)


def _missing_column(name: str, parsed: ParsedQuery, *, place: Place, known: Mapping[TableName, Sequence[str]]) -> SpecError:
    line, column = _position(name, parsed)
    names = sorted({column_name for reference in parsed.query.references for column_name in known[reference.table]})
    hint = suggest(name, names, plural="Columns")
    return place.error(f'not found: column "{name}" in the inputs', line=line, column=column, fix=f"{hint} Fix the name")


def _owners_of(name: str, parsed: ParsedQuery) -> tuple[TableName, ...]:
    """Return the inputs that could have a column: all if it is qualified, else the first, so that it is unambiguous."""
    from sqlglot import exp

    tables = tuple(dict.fromkeys(reference.table for reference in parsed.query.references))
    used = [column for column in parsed.tree.find_all(exp.Column) if column.name.lower() == name.lower()]
    return tables if used and all(column.table for column in used) else tables[:1]


def qualify_query(
    parsed: ParsedQuery, *, known: Mapping[TableName, Sequence[str]], strict: bool = True, aliases: bool = True
) -> exp.Query:
    """Return the query with expanded stars and qualified columns, in the spelling of query and inputs.

    With `strict`, an unknown column raises an OptimizeError; otherwise it is left unchanged. With `aliases`, references to
    names of the SELECT list are replaced by their expressions, even if Spark prefers a column of an input with the same name.
    """
    from sqlglot import exp
    from sqlglot.optimizer.qualify import qualify

    tables: dict[str, dict[str, dict[str, str]]] = {}
    for table, columns in known.items():
        tables.setdefault(table.namespace, {})[table.name] = dict.fromkeys(columns, "string")  # see _join_namespaces
    schema: dict[str, object] = dict(tables)
    spelled = {name.lower(): name for columns in known.values() for name in columns}
    spelled |= {identifier.name.lower(): identifier.name for identifier in parsed.tree.find_all(exp.Identifier)}
    qualified = qualify(
        _join_namespaces(parsed.tree.copy()),
        schema=schema,
        dialect=DIALECT,
        identify=False,
        quote_identifiers=False,
        validate_qualify_columns=strict,
        expand_alias_refs=aliases,
    )
    for identifier in qualified.find_all(exp.Identifier):
        identifier.set("this", spelled.get(identifier.name, identifier.name))
    if not isinstance(qualified, exp.Query):
        raise TypeError("qualify returned something other than a query")
    return qualified


def table_of(node: exp.Table) -> TableName:
    """Return the table of a node, also if its namespaces were joined to one identifier."""
    return TableName(".".join(part for part in (node.catalog, node.db) if part), node.name)


def _join_namespaces(tree: exp.Query) -> exp.Query:
    """Return the query with nested namespaces as one quoted identifier: sqlglot requires equally deep table names."""
    from sqlglot import exp

    nested = {(node.catalog, node.db, node.name) for node in tree.find_all(exp.Table) if node.catalog}
    for node in tree.find_all(exp.Table, exp.Column):
        outer, inner = node.text("catalog"), node.text("db")
        named = node.name if isinstance(node, exp.Table) else node.text("table")
        if (outer, inner, named) in nested:  # else it is a field of a struct in a struct
            node.set("db", exp.to_identifier(f"{outer}.{inner}", quoted=True))
            node.set("catalog", None)
    return tree


def split_namespaces(tree: exp.Expr) -> exp.Expr:
    """Return SQL with joined namespaces split again."""
    from sqlglot import exp

    for node in tree.find_all(exp.Table, exp.Column):
        outer, dot, inner = node.text("db").partition(".")
        if dot:
            node.set("catalog", exp.to_identifier(outer))
            node.set("db", exp.to_identifier(inner))
    return tree


def columns_of(query: exp.Query) -> tuple[str, ...] | None:
    """Return the names of a query's columns, or None if only an engine can resolve them."""
    names = tuple(query.named_selects)
    return None if "*" in names or not all(names) else names


def _position(name: str, parsed: ParsedQuery) -> tuple[int, int | None]:
    """Return the line and column of the first use of a column in a query."""
    from sqlglot import exp

    for node in parsed.tree.find_all(exp.Column, bfs=False):
        if node.name.lower() == name.lower() and "line" in node.this.meta:
            location = _locate(node.this.meta, parsed.query.origin)
            return location.line, location.column
    return 1, None


def _locate(meta: Mapping[str, int], origin: SourceMap | None) -> Location:
    """Return the location in the file of an identifier in the query's text."""
    return origin.locate(meta["end"]) if origin else Location(meta["line"], meta["col"])


def _offset(text: str, line: int, column: int) -> int:
    return sum(len(row) + 1 for row in text.split("\n")[: line - 1]) + column - 1


def _is_known(name: str, parsed: ParsedQuery, known: Mapping[TableName, Sequence[str]]) -> bool:
    """Return whether a name that sqlglot can't resolve is an alias or a column of an input."""
    from sqlglot import exp

    aliases = {alias.alias.lower() for alias in parsed.tree.find_all(exp.Alias)}
    columns = {column.lower() for reference in parsed.query.references for column in known[reference.table]}
    return name.lower() in aliases | columns


def _references(tree: exp.Query, *, place: Place, problems: Problems, origin: SourceMap | None) -> Iterator[Reference]:
    from sqlglot import exp

    local = {cte.alias for cte in tree.find_all(exp.CTE)}
    for node in tree.find_all(exp.Table):
        if (not node.db and node.name in local) or node.find_ancestor(exp.Hint):
            continue
        deep = node.this.find(exp.Identifier) if isinstance(node.this, exp.Dot) else None  # more than three words
        meta = (deep or node.this).meta
        if "start" not in meta:
            continue  # a function that returns a table
        location = _locate(meta, origin)
        if not node.db or deep:
            error = place.error(
                f'"{node.sql(dialect=DIALECT, comments=False)}" is not namespace.table',
                line=location.line,
                column=location.column,
                fix="Write the namespace, of one or two parts, and the table",
            )
            problems.errors.append(error)
            continue
        start = (node.args.get("catalog") or node.args["db"]).meta["start"]
        yield Reference(table_of(node), start, meta["end"] + 1, location.line)


def _drivers(query: exp.Expr, visible: Mapping[str, exp.Expr] | None = None) -> Iterator[TableName]:
    """Yield the tables in FROM, in every branch of a union and through subqueries and CTEs."""
    from sqlglot import exp

    with_ = query.args.get("with_") or query.args.get("with")
    names = {**(visible or {}), **{cte.alias: cte.this for cte in (with_.expressions if with_ else ())}}
    if isinstance(query, exp.Subquery):
        yield from _drivers(query.this, names)
    elif isinstance(query, exp.SetOperation):
        yield from _drivers(query.this, names)
        yield from _drivers(query.expression, names)
    elif isinstance(query, exp.Select):
        from_ = query.args.get("from_") or query.args.get("from")
        source = from_.this if from_ else None
        if isinstance(source, exp.Table) and not source.db and source.name in names:
            inner = names[source.name]
            yield from _drivers(inner, {name: tree for name, tree in names.items() if name != source.name})
        elif isinstance(source, exp.Table):
            yield table_of(source)
        elif source is not None:
            yield from _drivers(source, names)


def _count_reads(tree: exp.Query) -> Counter[TableName]:
    """Return how often a query reads each table. A table in a CTE counts as often as the CTE is read."""
    from sqlglot import exp

    inside: dict[str, list[exp.Table]] = {}
    for node in tree.find_all(exp.Table):
        around = node.find_ancestor(exp.CTE)
        inside.setdefault(around.alias if around else "", []).append(node)
    known = {"": 1}

    def times(alias: str) -> int:
        if alias not in known:
            known[alias] = 0  # a recursive CTE that reads itself adds nothing
            known[alias] = sum(
                times(outer) for outer, nodes in inside.items() for node in nodes if not node.db and node.name == alias
            )
        return known[alias]

    counts: Counter[TableName] = Counter()
    for alias, nodes in inside.items():
        for node in nodes:
            counts[table_of(node)] += times(alias)
    return counts
