"""Find the driver rows that changes of lookups touch.

Changed rows of a lookup are traced along join paths to the driver rows that they are joined with. Rows that changed only in
columns that the query does not read are skipped: most tables change in more columns than a join needs.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from headrace.build.lake import Lake
from headrace.build.net_changes import net_rows
from headrace.build.planned_inputs import PlannedInputs
from headrace.build.rows import ChangeSet, LocalRows, Rows
from headrace.build.text_keys import join_values
from headrace.spec.model.layers import LayerTable, Query
from headrace.spec.model.pipeline import TableName
from headrace.spec.model.types import Column, Decimal, Primitive
from headrace.spec.problems import Place
from headrace.spec.sql.followed_lookups import route_columns
from headrace.spec.sql.join_paths import TEXT, JoinPath, Route, plain_column
from headrace.spec.sql.queries import parse_query
from headrace.spec.sql.used_columns import used_columns


def touched_by_lookups(inputs: PlannedInputs) -> dict[TableName, list[Rows]]:
    """Return the distinct older driver rows that are joined with changed rows of a followed lookup."""
    joined: dict[TableName, list[Rows]] = {}
    earlier: dict[TableName, list[Rows]] = {}
    for lookup, routes in inputs.table.follows.items():
        for route in routes or () if inputs.moved(lookup) else ():
            values = _values_at_driver(inputs, route)
            if values is None:
                continue
            driver = route[-1].source
            rows = inputs.unchanged(driver, values)
            for others in earlier.get(driver, ()):
                rows = inputs.without(rows, others)
            joined.setdefault(driver, []).append(rows)
            earlier.setdefault(driver, []).append(values)
    return joined


def moved_lookups(inputs: PlannedInputs) -> tuple[TableName, ...] | None:
    """Return the followed lookups that changed, or None if the last build's state of one can no longer be read."""
    moved = tuple(filter(inputs.moved, inputs.table.follows))
    return moved if all(map(inputs.knows_past, moved)) else None


def _values_at_driver(inputs: PlannedInputs, route: Route) -> Rows | None:
    """Return the values of a driver's join columns for changed rows of a lookup, or None if there are none."""
    rows = _changed_rows(inputs, route[0])
    for path in route:
        known = inputs.lake.columns[path.source]
        if not {column.name for column in known}.issuperset(map(plain_column, path.source_columns)):
            return None
        _check_texts(inputs.table, path, known)
        pairs = dict(zip(path.source_columns, path.columns, strict=True))
        values = join_values(rows, pairs, known, nulls_match=path.nulls_match)
        if isinstance(values, LocalRows) and values.is_empty:
            return None
        if path is route[-1]:
            return values
        rows = inputs.matching(path.source, values)
    return None


def _check_texts(table: LayerTable, path: JoinPath, columns: tuple[Column, ...]) -> None:
    """Raise a SpecError if a join compares nested values as text, which can't be parsed back."""
    nested = {column.name for column in columns if not isinstance(column.type, (Primitive, Decimal))}
    for column in path.source_columns:
        name = plain_column(column)
        if column.endswith(TEXT) and name in nested:
            raise table.error(
                f"changes of {path.table} can't be followed: {name} of {path.source} is nested, and compared as text",
                at="",
                fix=f"Declare what a change rebuilds (rebuild_on: {{{path.table}: all}}), or write frozen: [{path.table}]",
            )


def _changed_rows(inputs: PlannedInputs, path: JoinPath) -> Rows:
    """Return the lookup's rows that changed in a column that the query reads, in their new and old form.

    The old form is read from the lookup's last state: its recorded removed rows may contain rows that were added and removed
    since then, or that still exist.
    """
    lookup, changes = path.table, inputs.changes(path.table)
    left = changes.left
    have = [column.name for column in inputs.lake.columns[lookup]]
    read = read_columns(inputs.lake, inputs.table).get(lookup, tuple(have))
    columns = list(dict.fromkeys((*read, *route_columns(inputs.table.follows, lookup))))
    is_plain = all(column == plain_column(column) for column in path.columns)
    none_left = left is None or (isinstance(left, LocalRows) and left.is_empty)
    if none_left or len(columns) == len(have) or not is_plain or not inputs.knows_past(lookup):
        return changes.both(columns)
    values = changes.both(list(dict.fromkeys(path.columns)))
    return net_rows(ChangeSet(inputs.matching(lookup, values), inputs.matching(lookup, values, past=True)), columns)


def read_columns(lake: Lake, table: LayerTable) -> Mapping[TableName, tuple[str, ...]]:
    """Return the input columns that a table's query reads; inputs for which they are unknown are omitted."""
    if not isinstance(table.source, Query):
        return {}
    known = tuple((name, tuple(column.name for column in lake.columns[name])) for name in table.inputs)
    return _used_columns(table.source.text, table.place, known)


@lru_cache(maxsize=1024)
def _used_columns(
    text: str, place: Place, known: tuple[tuple[TableName, tuple[str, ...]], ...]
) -> Mapping[TableName, tuple[str, ...]]:
    return used_columns(parse_query(text, place=place), known=dict(known))
