"""Cut one table out of its pipeline: its given inputs become tables that a test fills, and what is between is built.

A given raw table stays as it is. A given layer table becomes a table of the same name, columns and keys over a raw table of its
own: the newest row of each key, so that builds see changes and removals of its rows as those of the real one.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from headrace.errors import SpecError
from headrace.spec.model.layers import LayerTable, TableSettings
from headrace.spec.model.pipeline import Pipeline, Serving, Stream, TableName
from headrace.spec.model.types import Column, Primitive
from headrace.spec.problems import suggest
from headrace.spec.sql.queries import parse_query

_NAMESPACE = "headrace_test"
NUMBER, REMOVED, PREFIX = "row_number", "is_removed", "c_"
"""The columns of a stand-in's raw table: the order of the rows, whether a row was removed, and the prefix of its columns."""


@dataclass(frozen=True)
class Isolated:
    """The table under test in a pipeline of its own.

    `streams` are the raw tables that a test fills, by the names of the inputs. `stand_ins` are the given layer tables.
    """

    pipeline: Pipeline
    table: LayerTable
    streams: Mapping[str, Stream]
    stand_ins: Collection[str]


def upstream_of(pipeline: Pipeline, table: TableName) -> tuple[TableName, ...]:
    """Return a table's inputs, their inputs and so on, raw tables included."""
    by_name = {other.table: other for other in pipeline.tables}
    names: dict[TableName, None] = {}
    waiting = [*by_name[table].inputs]
    while waiting:
        name = waiting.pop()
        if name not in names:
            names[name] = None
            waiting += by_name[name].inputs if name in by_name else ()
    return tuple(names)


def resolve_input(name: str, known: Collection[TableName], *, where: str) -> TableName:
    """Return the upstream table of a name, with or without its namespace. Raises a SpecError if there is not exactly one."""
    matches = [table for table in known if name == str(table)] or [table for table in known if name == table.name]
    if len(matches) != 1:
        what = f'no upstream table is called "{name}"' if not matches else f'several upstream tables are called "{name}"'
        raise SpecError(what, where=where, next_step=suggest(name, map(str, known), plural="Upstream tables"))
    return matches[0]


def isolate(
    pipeline: Pipeline, table: LayerTable, given: Collection[TableName], columns: Mapping[TableName, tuple[Column, ...]]
) -> Isolated:
    """Return the table in a pipeline of its own, in which a test fills the tables of `given`.

    A direct input that is neither given nor built from given tables can be filled too, and is empty until then.
    """
    by_name = {other.table: other for other in pipeline.tables}

    def is_fed(name: TableName) -> bool:
        return name in given or (name in by_name and any(is_fed(source) for source in by_name[name].inputs))

    stand_ins: dict[TableName, None] = {}
    built: set[TableName] = set()
    waiting = [table.table]
    while waiting:
        name = waiting.pop()
        if name not in by_name or name in built or name in stand_ins:
            continue
        if name != table.table and (name in given or not is_fed(name)):
            stand_ins[name] = None
        else:
            built.add(name)
            waiting += by_name[name].inputs
    read = {source for name in built for source in by_name[name].inputs}
    streams = {str(stream.table): stream for stream in pipeline.streams if stream.table in read}
    streams |= {str(name): _stand_in_stream(name, columns[name]) for name in stand_ins}
    tables = tuple(
        _stand_in(other, columns[other.table]) if other.table in stand_ins else other
        for other in pipeline.tables
        if other.table in stand_ins or other.table in built
    )
    alone = replace(
        pipeline,
        streams=tuple(streams.values()),
        tables=tables,
        queries=(),
        http=None,
        serving=Serving(),
        people=None,
        capture=None,
    )
    return Isolated(alone, table, streams, frozenset(map(str, stand_ins)))


def _stand_in_stream(name: TableName, columns: tuple[Column, ...]) -> Stream:
    stored = tuple(Column(f"{PREFIX}{column.name}", column.type) for column in columns)
    own = (Column(NUMBER, Primitive("long")), Column(REMOVED, Primitive("boolean")))
    table = TableName(_NAMESPACE, name.flat)
    return Stream(name.flat, f"test-{name.flat}", 1, "json", (*stored, *own), table)


def _stand_in(table: LayerTable, columns: tuple[Column, ...]) -> LayerTable:
    """Return a table with the same name and columns over its raw table: by key if it has keys, else with appended rows."""
    source = TableName(_NAMESPACE, table.table.flat)
    keys = row_key(table)
    picked = [
        f"`{PREFIX}{column.name}` AS `{column.name}`"
        if column.name in keys or not keys
        else f"max_by(`{PREFIX}{column.name}`, {NUMBER}) AS `{column.name}`"
        for column in columns
    ]
    text = f"SELECT {', '.join(picked)} FROM {source}"
    if keys:
        grouped = ", ".join(f"`{PREFIX}{key}`" for key in keys)
        text += f" GROUP BY {grouped} HAVING NOT max_by({REMOVED}, {NUMBER})"
    settings = TableSettings(kind="aggregate" if keys else "append", keys=keys)
    return LayerTable(
        **{name: getattr(settings, name) for name in TableSettings.__dataclass_fields__},
        table=table.table,
        layer=table.layer,
        path=table.path,
        place=table.place,
        source=parse_query(text, place=table.place).query,
        drivers=(source,),
    )


def row_key(table: LayerTable) -> tuple[str, ...]:
    """Return the columns that identify a row of a table. A history has a row for each version of a key."""
    return (*table.keys, "valid_from") if table.traits.keeps_versions else table.keys
