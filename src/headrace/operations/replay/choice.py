"""What a replay is about: which messages are read again, and which tables are written anew."""

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
class Wanted:
    """What is to be replayed: `window` is read again from Kafka, `quarantined` decodes what was refused, and neither of them
    writes layer tables anew from what raw tables have.

    `reason` is a part of the reasons that are meant. `mended` has bytes by stream and message: then only these are meant.
    """

    window: Window | None = None
    quarantined: bool = False
    table: str | None = None
    reason: str | None = None
    mended: Mapping[str, Mapping[Coordinates, bytes]] | None = None


@dataclass(frozen=True)
class Chosen:
    """The streams whose messages are read again, and the tables that are written anew in any case."""

    streams: tuple[Stream, ...] = ()
    tables: tuple[LayerTable, ...] = ()


def choose(pipeline: Pipeline, wanted: Wanted) -> Chosen:
    """Return what a replay is about; a table that is not the pipeline's is a SpecError.

    A layer table means the raw tables that it is made of, where Kafka is read again, and else itself.
    """
    by_name = {each.table: each for each in pipeline.tables}
    if wanted.table is None:
        return Chosen(pipeline.streams if _reads(wanted) else (), () if wanted.window else pipeline.tables)
    streams = tuple(each for each in pipeline.streams if wanted.table in (each.table.name, str(each.table)))
    tables = tuple(each for each in pipeline.tables if wanted.table in (each.table.name, str(each.table)))
    streams = tuple(each for each in streams if str(each.table) == wanted.table) or streams
    tables = tuple(each for each in tables if str(each.table) == wanted.table) or tables
    if len(streams) + len(tables) != 1:
        names = [*(str(each.table) for each in pipeline.streams), *(str(each) for each in by_name)]
        what = f'several tables are called "{wanted.table}"' if streams or tables else f'there is no table "{wanted.table}"'
        raise SpecError(what, where=f"pipeline {pipeline.name}", next_step=suggest(wanted.table, names, plural="Tables"))
    if tables and wanted.window:
        above = _made_of(pipeline, tables[0])
        return Chosen(tuple(each for each in pipeline.streams if each.table in above))
    if streams and not _reads(wanted):
        return Chosen((), dependents(pipeline, {streams[0].table}))
    return Chosen(streams, tables)


def dependents(pipeline: Pipeline, names: set[TableName]) -> tuple[LayerTable, ...]:
    """Return the layer tables that are made of these tables, in the order in which they are built; lookups count."""
    found = set(names)
    tables = []
    for each in pipeline.tables:
        if found.intersection(each.inputs):
            found.add(each.table)
            tables.append(each)
    return tuple(tables)


def _reads(wanted: Wanted) -> bool:
    return wanted.window is not None or wanted.quarantined


def _made_of(pipeline: Pipeline, table: LayerTable) -> set[TableName]:
    """Return all that a table is made of."""
    found = {table.table}
    for each in reversed(pipeline.tables):
        if each.table in found:
            found |= set(each.inputs)
    return found
