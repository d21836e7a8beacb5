"""Wait until the lake has all changes of a Postgres up to an LSN."""

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
    """The path of a change into the lake: the replication slot, the topics, the raw tables and their downstream tables."""

    pipeline: Pipeline
    dsn: str = field(repr=False)
    slot: str
    bootstrap_servers: KafkaServers
    streams: tuple[Stream, ...] = ()
    tables: tuple[LayerTable, ...] = ()


def wait_for_topics(path: CdcPath, lsn: int, *, seconds: float) -> Ends:
    """Return the end offsets of the topics once they have every change up to the LSN."""
    with psycopg.connect(path.dsn, autocommit=True) as connection:

        def is_confirmed() -> bool:
            confirmed = confirmed_lsn(connection, slot=path.slot)
            if confirmed is None:
                raise LandingError(
                    f'Postgres has no replication slot "{path.slot}"',
                    where=f"pipeline {path.pipeline.name}",
                    next_step=f"Register its connector: headrace connectors register {path.pipeline.name}",
                )
            return confirmed >= lsn

        _wait(is_confirmed, path, what="the connector has not written all changes to Kafka", seconds=seconds)
    admin = admin_client(path.bootstrap_servers)
    known = list_partitions(admin)
    wanted = [(stream.topic, partition) for stream in path.streams for partition in known.get(stream.topic, ())]
    return {place: high for place, (_, high) in list_bounds(admin, wanted).items()}


def wait_for_tables(path: CdcPath, ends: Ends, *, catalog: Catalog, seconds: float) -> None:
    """Return when the running application has landed every message before these ends and built all tables from them."""
    reached: dict[TableName, int] = {}

    def is_there() -> bool:
        return all(_has_landed(catalog, stream, ends, reached) for stream in path.streams) and all(
            _is_built(catalog, path.pipeline, table, reached) for table in path.tables
        )

    _wait(is_there, path, what="the running application has not landed and built all changes", seconds=seconds)


def _has_landed(catalog: Catalog, stream: Stream, ends: Ends, reached: dict[TableName, int]) -> bool:
    """Return whether a raw table has all messages before the ends. Record the first checkpoint that has them in `reached`."""
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
    """Return whether a table was built from its inputs as `reached` or newer. Record that build in `reached`."""
    if table.table in reached:
        return True
    stored = load_table(catalog, table.table)
    reads = read_build(stored).reads
    for name in table.inputs:
        wanted = reached.get(name)
        if wanted is None and not is_raw(name, pipeline):
            continue  # a table of another pipeline, or not upstream of the compared tables
        state = reads.get(str(name))
        if wanted and (state is None or state.position < wanted):
            return False
    reached[table.table] = state_of(stored, raw=False).position
    return True


def _wait(is_done: Callable[[], bool], path: CdcPath, *, what: str, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not is_done():
        if time.monotonic() > deadline:
            name = path.pipeline.name
            raise LandingError(
                f"{what} within {seconds:.0f} seconds",
                where=f"pipeline {name}",
                next_step=f"Check the progress: headrace connectors status {name}   and: headrace status {name}",
            )
        time.sleep(_PAUSE_SECONDS)


def with_upstream(pipeline: Pipeline, last: Sequence[LayerTable]) -> tuple[LayerTable, ...]:
    """Return these tables and everything upstream of them, in build order."""
    wanted = {table.table for table in last}
    for table in reversed(pipeline.tables):
        if table.table in wanted:
            wanted |= set(table.inputs)
    return tuple(table for table in pipeline.tables if table.table in wanted)
