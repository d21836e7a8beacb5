"""Waits until the lake has all that a Postgres had written up to an LSN."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import psycopg
from pyiceberg.catalog import Catalog

from headrace.build.inputs import is_raw, state_of
from headrace.errors import LandingError
from headrace.iceberg.catalog.tables import load_table
from headrace.iceberg.ledgers.build import read_build
from headrace.iceberg.ledgers.landing import read_ledger
from headrace.kafka.client import KafkaServers
from headrace.kafka.topics import admin_client, list_bounds, list_partitions
from headrace.operations.compare.source_tables import confirmed_lsn
from headrace.spec.model.layers import LayerTable
from headrace.spec.model.pipeline import Pipeline, Stream, TableName

_PAUSE_SECONDS = 0.25

Ends = Mapping[tuple[str, int], int]


@dataclass(frozen=True)
class CdcPath:
    """What an LSN has to pass on its way into the lake: the slot, the topics, the raw tables, and what is built of them."""

    pipeline: Pipeline
    dsn: str = field(repr=False)
    slot: str
    bootstrap_servers: KafkaServers
    streams: tuple[Stream, ...] = ()
    tables: tuple[LayerTable, ...] = ()


def wait_for_topics(way: CdcPath, lsn: int, *, seconds: float) -> Ends:
    """Return the ends of the topics once they hold every change up to the LSN."""
    with psycopg.connect(way.dsn, autocommit=True) as connection:

        def is_confirmed() -> bool:
            found = confirmed_lsn(connection, slot=way.slot)
            if found is None:
                raise LandingError(
                    f'Postgres has no replication slot "{way.slot}"',
                    where=f"pipeline {way.pipeline.name}",
                    next_step=f"Register its connector: headrace connectors register {way.pipeline.name}",
                )
            return found >= lsn

        _wait(is_confirmed, way, what="the connector has not brought all changes to Kafka", seconds=seconds)
    admin = admin_client(way.bootstrap_servers)
    known = list_partitions(admin)
    wanted = [(stream.topic, partition) for stream in way.streams for partition in known.get(stream.topic, ())]
    return {place: high for place, (_, high) in list_bounds(admin, wanted).items()}


def wait_for_tables(way: CdcPath, ends: Ends, *, catalog: Catalog, seconds: float) -> None:
    """Return when an application that lands and build has brought every message before these ends into all tables."""
    reached: dict[TableName, int] = {}

    def is_there() -> bool:
        return all(_has_landed(catalog, stream, ends, reached) for stream in way.streams) and all(
            _is_built(catalog, way.pipeline, table, reached) for table in way.tables
        )

    _wait(is_there, way, what="the application that lands the pipeline has not caught up", seconds=seconds)


def _has_landed(catalog: Catalog, stream: Stream, ends: Ends, reached: dict[TableName, int]) -> bool:
    """Return whether a raw table has all messages before the ends; the first checkpoint that has them is kept."""
    if stream.table in reached:
        return True
    table = load_table(catalog, stream.table)
    offsets = read_ledger(table).offsets if table else {}
    wanted = {partition: end for (topic, partition), end in ends.items() if topic == stream.topic and end > 0}
    if any(offsets.get(partition, 0) < end for partition, end in wanted.items()):
        return False
    reached[stream.table] = state_of(table, raw=True).position
    return True


def _is_built(catalog: Catalog, pipeline: Pipeline, table: LayerTable, reached: dict[TableName, int]) -> bool:
    """Return whether a table was built from what its inputs had when they were reached; its own build then is kept."""
    if table.table in reached:
        return True
    found = load_table(catalog, table.table)
    reads = read_build(found).reads
    for name in table.inputs:
        wanted = reached.get(name)
        if wanted is None and not is_raw(name, pipeline):
            continue  # another pipeline's, or one that is not on the way
        state = reads.get(str(name))
        if wanted and (state is None or state.position < wanted):
            return False
    reached[table.table] = state_of(found, raw=False).position
    return True


def _wait(is_done: Callable[[], bool], way: CdcPath, *, what: str, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not is_done():
        if time.monotonic() > deadline:
            name = way.pipeline.name
            raise LandingError(
                f"{what} within {seconds:.0f} seconds",
                where=f"pipeline {name}",
                next_step=f"See where it stands: headrace connectors status {name}   and: headrace status {name}",
            )
        time.sleep(_PAUSE_SECONDS)


def tables_on_the_way(pipeline: Pipeline, last: Sequence[LayerTable]) -> tuple[LayerTable, ...]:
    """Return these tables and all that they read, each after those that it reads."""
    wanted = {each.table for each in last}
    for each in reversed(pipeline.tables):
        if each.table in wanted:
            wanted |= set(each.inputs)
    return tuple(each for each in pipeline.tables if each.table in wanted)
