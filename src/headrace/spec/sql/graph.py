"""How the tables of a pipeline hang together: who reads whom, in which order, and what can't be."""

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
    """Return the tables, each after those that it reads; unknown inputs, cycles and wrong columns are kept as problems.

    `broken` are tables that could not be read: nothing is said of whoever reads them.
    """
    raw = {stream.table: stream for stream in streams}
    by_name = {each.table: each for each in tables}
    for table in tables:
        problems.attempt(_check_owner, table, raw=raw, tables=tables)
        problems.errors += _unknown_inputs(table, known=[*raw, *by_name, *broken])
    ordered = _sort(by_name, problems=problems)
    columns: dict[TableName, tuple[str, ...]] = {
        each: tuple(column.name for column in landed_columns(stream)) for each, stream in raw.items()
    }
    followed: list[LayerTable] = []
    clear = set(raw)
    for table in ordered:
        problems.errors += _check_reading(table, by_name=by_name)
        problems.attempt(_check_watermark, table, known=columns)
        before = len(problems.errors)
        found = problems.attempt(_columns, table, known=columns, problems=problems)
        if len(problems.errors) == before and clear.issuperset(table.inputs):
            clear.add(table.table)
            follows = follow_lookups(table, known=columns, by_name=by_name, problems=problems)
            followed.append(replace(table, follows=follows))
            mixed = check_mixed_rows(table, known=columns)
            problems.errors += [mixed] if mixed else []
        else:
            followed.append(table)  # how it joins can't be told before its mistakes are fixed
        if found is not None:
            problems.errors += _check_settings(table, found)
            columns[table.table] = readable_columns(table, found)
        for expectation in table.expectations:
            problems.attempt(_check_condition, table, f"expect: {expectation.sentence}", expectation.that, expectation.line)
        for key, condition in event_conditions(table).items():
            problems.attempt(_check_condition, table, key, condition, table.lines.get(key, 1))
    return tuple(followed)


def readable_columns(table: LayerTable, columns: Sequence[str]) -> tuple[str, ...]:
    """Return the columns that readers of a table see when its query and return these."""
    kept = tuple(name for name in columns if name not in table.except_columns)
    if table.kind == "entities":
        return entity_columns(table.matches, kept)
    return (*kept, *HISTORY_COLUMNS) if table.kind == "history" else kept


def event_conditions(table: LayerTable) -> dict[str, str]:
    """Return the conditions that say what a row does to others, by their setting."""
    found = {"apply_as_deletes": table.apply_as_deletes, "apply_as_truncates": table.apply_as_truncates}
    return {key: condition for key, condition in found.items() if condition}


def _check_owner(table: LayerTable, *, raw: Mapping[TableName, Stream], tables: Sequence[LayerTable]) -> None:
    if table.table in raw:
        raise table.error(
            f'stream "{raw[table.table].name}" already lands in {table.table}',
            at="",
            fix="Rename the file, or the stream's table",
        )
    names = [*raw, *(each.table for each in tables)]
    inside = next((each for each in names if each.namespace == str(table.table)), None)
    around = next((each for each in names if str(each) == table.table.namespace), None)
    if inside or around:
        what = f"{table.table} is also the namespace of {inside}" if inside else f"its namespace {around} is also a table"
        raise table.error(what, at="", fix="Give one of them another name")
    others = [each for each in tables if each.table == table.table and each.path != table.path]
    if others:
        raise table.error(
            f"{others[0].place.label} makes {table.table} as well", at="", fix="Give each table a file of its own name"
        )


def _unknown_inputs(table: LayerTable, *, known: Sequence[TableName]) -> list[SpecError]:
    errors = []
    lines = {each.table: each.line for each in table.source.references} if isinstance(table.source, Query) else {}
    names = {str(name): name for name in known}
    for name in dict.fromkeys((*table.inputs, *table.rebuild_on, *table.frozen)):
        if name not in known:
            hint = suggest(str(name), names, plural="Tables")
            setting = "rebuild_on" if name in table.rebuild_on else "frozen"
            line = lines.get(name, table.lines.get(setting, table.lines.get("", 1)))
            errors.append(table.error(f"{name} is no table of this pipeline", at=line, fix=f"{hint} Fix the name"))
    if not table.drivers and table.kind != "full":
        errors.append(
            table.error("the table reads nothing", at="", fix="Name a table after FROM, or write kind: full for fixed rows")
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
            circle = " → ".join(str(each) for each in (*around, table.table))
            if not in_circles.intersection(around):
                what = f"the tables read one another in a circle: {circle}"
                problems.errors.append(table.error(what, at="", fix="Take one of the inputs out"))
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
    """Check that the table's kind can follow what its inputs do, and return what is wrong."""
    for name in table.drivers:
        driver = by_name.get(name)
        if table.kind == "append" and driver is not None and driver.kind != "append":
            yield table.error(
                f"{name} is of kind {driver.kind}: its rows change, and appended rows can't follow",
                at="",
                fix="Add keys, or write kind: full",
            )
    for setting, names in (("rebuild_on", table.rebuild_on), ("frozen", table.frozen)):
        for name in names:
            if name not in (*table.lookups, *table.reread):
                yield table.error(f"{setting} names {name}, which is not joined here", at=setting, fix="Take it out")
    for name in table.rebuild_on:
        if name in table.frozen:
            yield table.error(f"{name} is in rebuild_on and in frozen", at="frozen", fix="Take it out of one of them")


def _check_watermark(table: LayerTable, *, known: Mapping[TableName, Sequence[str]]) -> None:
    """Check that the watermark's column is one of the first driver, where its columns are known without an engine."""
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
            f"HAVING hides keys from a build that recomputes them, and they can't be added up: {hidden.reason}",
            at="keys",
            fix="Filter in the table that reads this one, or write kind: full",
        )
        problems.errors.append(error)
    inputs = {name: columns for name, columns in known.items() if name in table.inputs}
    return check_columns(parsed, place=table.place, known=inputs, problems=problems)


def _check_settings(table: LayerTable, columns: tuple[str, ...]) -> Iterator[SpecError]:
    """Check that the settings name columns that the query and return, and return what is wrong."""
    yield from find_wrong_names(table, columns)
    for expectation in table.expectations:
        yield from _check_condition_names(
            table, f'expect "{expectation.sentence}":', expectation.that, columns, line=expectation.line
        )
    for key, condition in event_conditions(table).items():
        yield from _check_condition_names(table, f"{key}:", condition, columns, line=key)
    yield from _find_reserved_names(table, columns)


def _find_reserved_names(table: LayerTable, columns: Sequence[str]) -> Iterator[SpecError]:
    """Return an error for each column of the query that has the name of one which Headrace adds."""
    own = table.added_columns
    if table.kind == "history":
        own += HISTORY_COLUMNS
    if table.kind == "entities":
        own += (*ENTITY_COLUMNS, *(each.column for each in table.matches))
    for name in columns:
        if name.lower() in own:
            yield table.error(f'the query names a column "{name}", which Headrace adds itself', at="", fix="Leave it out")


def check_names(table: LayerTable, columns: Sequence[str]) -> None:
    """Raise a SpecError where a setting names what is no column of the query, or the query a column that Headrace adds."""
    for error in (*find_wrong_names(table, columns), *_find_reserved_names(table, columns)):
        raise error


def find_wrong_names(table: LayerTable, columns: Sequence[str]) -> Iterator[SpecError]:
    """Return an error for each column that a setting names and the query lacks."""
    for match in table.matches:
        for name in match.reads:
            if name not in columns:
                yield _missing_column(table, f"match {match.column}", name, columns, line=match.line)
    if table.fuzzy:
        known = (*columns, *(each.column for each in table.matches))
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
    """Return the columns that settings name, by the setting."""
    return {
        "keys": table.keys,
        "sequence_by": table.sequence_by,
        "unchanged": (table.unchanged,) if table.unchanged else (),
        "valid_from": (table.valid_from,) if table.valid_from else (),
        "constant": table.constant,
        "except_column_list": table.except_columns,
        "track_history_except_column_list": table.untracked,
        "partition_by": tuple(each.column for each in table.partition_by if each.column not in HISTORY_COLUMNS),
        "oldest_by": (table.oldest_by,) if table.oldest_by else (),
        "window": (*table.window.partition_by, table.window.order_by) if table.window else (),
    }


def _missing_column(table: LayerTable, key: str, name: str, columns: Sequence[str], *, line: str | int) -> SpecError:
    hint = suggest(name, columns, plural="Columns")
    return table.error(f'{key} "{name}" is not a column of this table', at=line, fix=f"{hint} Fix the name")


def _check_condition_names(
    table: LayerTable, what: str, condition: str, columns: Sequence[str], *, line: str | int
) -> Iterator[SpecError]:
    """Check that a condition names columns of the query; whether it is SQL at all is told elsewhere."""
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
    """Check that a condition is SQL; its columns are checked where their types are known."""
    from headrace.errors import SpecError

    try:
        parse_sql(f"SELECT {condition}", place=table.place)
    except SpecError as error:
        raise table.error(f"{what} is {error.what}", at=line, fix="Write a SQL condition, such as amount > 0") from None
