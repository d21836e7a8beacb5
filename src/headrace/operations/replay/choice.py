"""Choose the scope of a replay: the messages to read again, and the tables to rebuild."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headrace.errors import SpecError
from headrace.iceberg.ledgers.replay import Window
from headrace.operations.replay.target import Coordinates
from headrace.spec.model.layers import LayerTable
from headrace.spec.model.pipeline import Pipeline, Stream, TableName
from headrace.spec.problems import suggest


@dataclass(frozen=True)
class ReplayRequest:
    """The request of a replay: with `window`, read messages from Kafka again; with `quarantined`, decode refused messages
    again; with neither, rebuild layer tables from the raw tables.

    `reason` selects refused messages whose reason contains it. `edited` selects the messages that were edited by hand, and has
    their bytes by stream and coordinates.
    """

    window: Window | None = None
    quarantined: bool = False
    table: str | None = None
    reason: str | None = None
    edited: Mapping[str, Mapping[Coordinates, bytes]] | None = None


@dataclass(frozen=True)
class ReplayScope:
    """The streams whose messages are read again, and the tables that are rebuilt in any case."""

    streams: tuple[Stream, ...] = ()
    tables: tuple[LayerTable, ...] = ()


def choose(pipeline: Pipeline, request: ReplayRequest) -> ReplayScope:
    """Return the scope of a replay. Raise a SpecError if the pipeline does not have the table, or several tables match.

    With `window`, a layer table selects its upstream raw tables; otherwise it selects itself.
    """
    if request.table is None:
        return ReplayScope(pipeline.streams if _reads(request) else (), () if request.window else pipeline.tables)
    streams = tuple(stream for stream in pipeline.streams if request.table in (stream.table.name, str(stream.table)))
    tables = tuple(table for table in pipeline.tables if request.table in (table.table.name, str(table.table)))
    streams = tuple(stream for stream in streams if str(stream.table) == request.table) or streams
    tables = tuple(table for table in tables if str(table.table) == request.table) or tables
    if len(streams) + len(tables) != 1:
        names = [*(str(stream.table) for stream in pipeline.streams), *(str(table.table) for table in pipeline.tables)]
        what = f'several tables match "{request.table}"' if streams or tables else f'not found: table "{request.table}"'
        raise SpecError(what, where=f"pipeline {pipeline.name}", next_step=suggest(request.table, names, plural="Tables"))
    if tables and request.window:
        upstream = _upstream_of(pipeline, tables[0])
        return ReplayScope(tuple(stream for stream in pipeline.streams if stream.table in upstream))
    if streams and not _reads(request):
        return ReplayScope((), dependents(pipeline, {streams[0].table}))
    return ReplayScope(streams, tables)


def dependents(pipeline: Pipeline, names: set[TableName]) -> tuple[LayerTable, ...]:
    """Return the layer tables downstream of these tables, in build order. Lookups count as dependencies."""
    known = set(names)
    tables = []
    for table in pipeline.tables:
        if known.intersection(table.inputs):
            known.add(table.table)
            tables.append(table)
    return tuple(tables)


def _reads(request: ReplayRequest) -> bool:
    return request.window is not None or request.quarantined


def _upstream_of(pipeline: Pipeline, table: LayerTable) -> set[TableName]:
    """Return a table and everything upstream of it."""
    names = {table.table}
    for candidate in reversed(pipeline.tables):
        if candidate.table in names:
            names |= set(candidate.inputs)
    return names
