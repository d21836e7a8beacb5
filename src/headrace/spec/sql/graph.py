"""The dependency graph of a pipeline's tables: build order and checks across tables."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from headrace.spec.model.columns import landed_columns
from headrace.spec.model.layers import HISTORY_COLUMNS, LayerTable, Query
from headrace.spec.model.matching import ENTITY_COLUMNS, entity_columns
from headrace.spec.model.pipeline import Stream, TableName
from headrace.spec.problems import Problems, suggest
from headrace.spec.sql.aggregates import Recomputed, decompose
from headrace.spec.sql.followed_lookups import follow_lookups
from headrace.spec.sql.mixed_rows import check_mixed_rows
from headrace.spec.sql.queries import check_columns, named_in, parse_query, parse_sql

if TYPE_CHECKING:
    from headrace.errors import SpecError


def order_tables(
    tables: Sequence[LayerTable], *, streams: Sequence[Stream], problems: Problems, broken: Collection[TableName] = ()
) -> tuple[LayerTable, ...]:
    """Return the tables in dependency order. Unknown inputs, cycles and wrong columns are collected in `problems`.

    `broken` are tables that could not be read. Reading them is not an error.
    """
    raw = {stream.table: stream for stream in streams}
    by_name = {table.table: table for table in tables}
    for table in tables:
        problems.attempt(_check_owner, table, raw=raw, tables=tables)
        problems.errors += _unknown_inputs(table, known=[*raw, *by_name, *broken])
    ordered = _sort(by_name, problems=problems)
    columns: dict[TableName, tuple[str, ...]] = {
        name: tuple(column.name for column in landed_columns(stream)) for name, stream in raw.items()
    }
    followed: list[LayerTable] = []
    clear = set(raw)
    for table in ordered:
        problems.errors += _check_reading(table, by_name=by_name)
        problems.attempt(_check_watermark, table, known=columns)
        before = len(problems.errors)
        query_columns = problems.attempt(_columns, table, known=columns, problems=problems)
        if len(problems.errors) == before and clear.issuperset(table.inputs):
            clear.add(table.table)
            follows = follow_lookups(table, known=columns, by_name=by_name, problems=problems)
            followed.append(replace(table, follows=follows))
            mixed = check_mixed_rows(table, known=columns)
            problems.errors += [mixed] if mixed else []
        else:
            followed.append(table)  # joins can't be analysed before the errors are fixed
        if query_columns is not None:
            problems.errors += _check_settings(table, query_columns)
            columns[table.table] = readable_columns(table, query_columns)
        for expectation in table.expectations:
            problems.attempt(_check_condition, table, f"expect: {expectation.sentence}", expectation.that, expectation.line)
        for key, condition in event_conditions(table).items():
            problems.attempt(_check_condition, table, key, condition, table.lines.get(key, 1))
    return tuple(followed)


def readable_columns(table: LayerTable, columns: Sequence[str]) -> tuple[str, ...]:
    """Return the columns that readers of a table see, given the columns of its query."""
    visible = tuple(name for name in columns if name not in table.except_columns)
    if table.kind == "entities":
        return entity_columns(table.matches, visible)
    return (*visible, *HISTORY_COLUMNS) if table.kind == "history" else visible


def event_conditions(table: LayerTable) -> dict[str, str]:
    """Return the conditions for deletes and truncates, by their setting."""
    conditions = {"apply_as_deletes": table.apply_as_deletes, "apply_as_truncates": table.apply_as_truncates}
    return {key: condition for key, condition in conditions.items() if condition}


def _check_owner(table: LayerTable, *, raw: Mapping[TableName, Stream], tables: Sequence[LayerTable]) -> None:
    if table.table in raw:
        raise table.error(
            f'stream "{raw[table.table].name}" already lands in {table.table}',
            at="",
            fix="Rename the file, or the stream's table",
        )
    names = [*raw, *(other.table for other in tables)]
    inside = next((name for name in names if name.namespace == str(table.table)), None)
    around = next((name for name in names if str(name) == table.table.namespace), None)
    if inside or around:
        what = f"{table.table} is also the namespace of {inside}" if inside else f"its namespace {around} is also a table"
        raise table.error(what, at="", fix="Rename one of them")
    others = [other for other in tables if other.table == table.table and other.path != table.path]
    if others:
        raise table.error(f"{others[0].place.label} also defines {table.table}", at="", fix="Define each table in one file")


def _unknown_inputs(table: LayerTable, *, known: Sequence[TableName]) -> list[SpecError]:
    errors = []
    lines = (
        {reference.table: reference.line for reference in table.source.references} if isinstance(table.source, Query) else {}
    )
    names = {str(name): name for name in known}
    for name in dict.fromkeys((*table.inputs, *table.rebuild_on, *table.frozen)):
        if name not in known:
            hint = suggest(str(name), names, plural="Tables")
            setting = "rebuild_on" if name in table.rebuild_on else "frozen"
            line = lines.get(name, table.lines.get(setting, table.lines.get("", 1)))
            errors.append(table.error(f"{name} is not a table of this pipeline", at=line, fix=f"{hint} Fix the name"))
    if not table.drivers and table.kind != "full":
        errors.append(
            table.error("the table has no inputs", at="", fix="Add a table in FROM, or write kind: full for constant rows")
        )
    return errors


def _sort(tables: Mapping[TableName, LayerTable], *, problems: Problems) -> tuple[LayerTable, ...]:
    ordered: dict[TableName, LayerTable] = {}
    in_circles: set[TableName] = set()

    def visit(table: LayerTable, path: tuple[TableName, ...]) -> None:
        if table.table in ordered:
            return
        if table.table in path:
            around = path[path.index(table.table) :]
            circle = " → ".join(str(name) for name in (*around, table.table))
            if not in_circles.intersection(around):
                what = f"circular dependency: {circle}"
                problems.errors.append(table.error(what, at="", fix="Remove one of the inputs"))
            in_circles.update(around)
            return
        for name in table.inputs:
            if name in tables:
                visit(tables[name], (*path, table.table))
        ordered[table.table] = table

    for table in tables.values():
        visit(table, ())
    return tuple(ordered.values())


def _check_reading(table: LayerTable, *, by_name: Mapping[TableName, LayerTable]) -> Iterator[SpecError]:
    """Yield an error for each input and setting that the table's kind can't follow."""
    for name in table.drivers:
        driver = by_name.get(name)
        if table.kind == "append" and driver is not None and driver.kind != "append":
            yield table.error(
                f"a table of kind append can't read {name}, which is of kind {driver.kind} and changes rows",
                at="",
                fix="Add keys, or write kind: full",
            )
    for setting, names in (("rebuild_on", table.rebuild_on), ("frozen", table.frozen)):
        for name in names:
            if name not in (*table.lookups, *table.reread):
                yield table.error(f"{setting} names {name}, which the query does not join", at=setting, fix="Remove it")
    for name in table.rebuild_on:
        if name in table.frozen:
            yield table.error(f"{name} is in both rebuild_on and frozen", at="frozen", fix="Remove it from one of them")


def _check_watermark(table: LayerTable, *, known: Mapping[TableName, Sequence[str]]) -> None:
    """Raise a SpecError if the first driver, as far as its columns are known, lacks the watermark's column."""
    if table.watermark is None or not table.drivers or table.drivers[0] not in known:
        return
    columns = known[table.drivers[0]]
    if table.watermark.column not in columns:
        hint = suggest(table.watermark.column, columns, plural="Columns")
        what = f'watermark "{table.watermark.column}" is not a column of {table.drivers[0]}'
        raise table.error(what, at="watermark", fix=f"{hint} Fix the name")


def _columns(table: LayerTable, *, known: Mapping[TableName, Sequence[str]], problems: Problems) -> tuple[str, ...] | None:
    if not isinstance(table.source, Query):
        return None
    parsed = parse_query(table.source.text, place=table.place, origin=table.source.origin)
    having = parsed.tree.args.get("having")
    hidden = decompose(table) if table.kind == "aggregate" and having is not None else None
    if isinstance(hidden, Recomputed):
        error = table.error(
            f"HAVING requires an aggregate that can be maintained incrementally: {hidden.reason}",
            at="keys",
            fix="Filter in a table that reads this one, or write kind: full",
        )
        problems.errors.append(error)
    inputs = {name: columns for name, columns in known.items() if name in table.inputs}
    return check_columns(parsed, place=table.place, known=inputs, problems=problems)


def _check_settings(table: LayerTable, columns: tuple[str, ...]) -> Iterator[SpecError]:
    """Yield an error for each setting that names an unknown column, and for each reserved column name."""
    yield from find_wrong_names(table, columns)
    for expectation in table.expectations:
        yield from _check_condition_names(
            table, f'expect "{expectation.sentence}":', expectation.that, columns, line=expectation.line
        )
    for key, condition in event_conditions(table).items():
        yield from _check_condition_names(table, f"{key}:", condition, columns, line=key)
    yield from _find_reserved_names(table, columns)


def _find_reserved_names(table: LayerTable, columns: Sequence[str]) -> Iterator[SpecError]:
    """Yield an error for each column of the query with the name of a column that Headrace adds."""
    own = table.added_columns
    if table.kind == "history":
        own += HISTORY_COLUMNS
    if table.kind == "entities":
        own += (*ENTITY_COLUMNS, *(match.column for match in table.matches))
    for name in columns:
        if name.lower() in own:
            yield table.error(
                f'column name "{name}" is reserved: Headrace adds this column', at="", fix="Rename or remove the column"
            )


def check_names(table: LayerTable, columns: Sequence[str]) -> None:
    """Raise a SpecError if a setting names an unknown column, or the query returns a reserved column name."""
    for error in (*find_wrong_names(table, columns), *_find_reserved_names(table, columns)):
        raise error


def find_wrong_names(table: LayerTable, columns: Sequence[str]) -> Iterator[SpecError]:
    """Yield an error for each column that a setting names and the query lacks."""
    for match in table.matches:
        for name in match.reads:
            if name not in columns:
                yield _missing_column(table, f"match {match.column}", name, columns, line=match.line)
    if table.fuzzy:
        known = (*columns, *(match.column for match in table.matches))
        for comparison in table.fuzzy.compare:
            if comparison.column not in known:
                yield _missing_column(table, "fuzzy compare", comparison.column, known, line=comparison.line)
        for block in table.fuzzy.block_on:
            for name in block.columns:
                if name not in known:
                    yield _missing_column(table, "fuzzy block_on", name, known, line=block.line)
    for key, names in _named_columns(table).items():
        for name in names:
            if name not in columns:
                yield _missing_column(table, key, name, columns, line=key)


def _named_columns(table: LayerTable) -> dict[str, tuple[str, ...]]:
    """Return the columns that settings name, by setting."""
    return {
        "keys": table.keys,
        "sequence_by": table.sequence_by,
        "unchanged": (table.unchanged,) if table.unchanged else (),
        "valid_from": (table.valid_from,) if table.valid_from else (),
        "constant": table.constant,
        "except_column_list": table.except_columns,
        "track_history_except_column_list": table.untracked,
        "partition_by": tuple(transform.column for transform in table.partition_by if transform.column not in HISTORY_COLUMNS),
        "oldest_by": (table.oldest_by,) if table.oldest_by else (),
        "window": (*table.window.partition_by, table.window.order_by) if table.window else (),
    }


def _missing_column(table: LayerTable, key: str, name: str, columns: Sequence[str], *, line: str | int) -> SpecError:
    hint = suggest(name, columns, plural="Columns")
    return table.error(f'{key} "{name}" is not a column of this table', at=line, fix=f"{hint} Fix the name")


def _check_condition_names(
    table: LayerTable, what: str, condition: str, columns: Sequence[str], *, line: str | int
) -> Iterator[SpecError]:
    """Yield an error for each unknown column in a condition. `_check_condition` reports invalid SQL."""
    from headrace.errors import SpecError

    try:
        names = named_in(condition, place=table.place)
    except SpecError:
        return
    known = {name.lower() for name in columns}
    for name in names:
        if name.lower() not in known:
            yield _missing_column(table, what, name, columns, line=line)


def _check_condition(table: LayerTable, what: str, condition: str, line: int) -> None:
    """Raise a SpecError if a condition is not valid SQL."""
    from headrace.errors import SpecError

    try:
        parse_sql(f"SELECT {condition}", place=table.place)
    except SpecError as error:
        raise table.error(f"{what} is {error.what}", at=line, fix="Write a SQL condition, such as amount > 0") from None
