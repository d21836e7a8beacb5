"""The history of a table that its downstream tables still need."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from threading import Lock

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from headrace.iceberg.catalog.tables import load_table
from headrace.iceberg.ledgers.build import KEY, BuildLedger, InputState, read_build
from headrace.spec.model.pipeline import Pipeline, TableName


class ReadSnapshots:
    """The snapshots that downstream tables have read up to, as known to this process. Thread-safe.

    A commit retains them without reading the metadata of other tables, so it may miss builds of other processes. A table whose
    snapshot is expired computes more than necessary, with the same result.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._by_reader: dict[TableName, Mapping[str, frozenset[int]]] = {}

    def note(self, reader: TableName, *reads: Mapping[str, InputState]) -> None:
        """Record the states that a table has read up to, or is reading up to, replacing earlier ones."""
        names = {name for states in reads for name in states}
        snapshots = {name: [states[name].snapshot_id for states in reads if name in states] for name in names}
        with self._lock:
            self._by_reader[reader] = {
                name: frozenset(snapshot_id for snapshot_id in ids if snapshot_id is not None)
                for name, ids in snapshots.items()
            }

    def of(self, name: TableName) -> frozenset[int]:
        """Return the snapshots of a table that its downstream tables have read up to."""
        with self._lock:
            return frozenset().union(*(reads.get(str(name), ()) for reads in self._by_reader.values()))


def snapshots_read(catalog: Catalog, pipeline: Pipeline, name: TableName) -> frozenset[int]:
    """Return the snapshots of a table that the last builds of its downstream tables read, from their ledgers."""
    entries = (read_build(load_table(catalog, table.table)) for table in pipeline.tables if name in table.inputs)
    states = (entry.reads.get(str(name)) for entry in entries)
    return frozenset(state.snapshot_id for state in states if state and state.snapshot_id is not None)


def position_passed(catalog: Catalog, pipeline: Pipeline, name: TableName) -> int:
    """Return the build of a table up to which all downstream tables have read, even after any rollback of theirs.

    A downstream table that was never built, or read another generation of the table, is refreshed and needs no history.
    """
    own = read_build(load_table(catalog, name))
    followers = [table.table for table in pipeline.tables if name in table.change_sources]
    tables = [table for follower in followers if (table := load_table(catalog, follower)) is not None]
    states = [entry.reads[str(name)] for table in tables for entry in _entries(table) if str(name) in entry.reads]
    return min((state.position for state in states if state.generation == own.generation), default=own.changed_in)


def _entries(table: Table) -> Iterator[BuildLedger]:
    """Yield the table's newest entry and the entries of all snapshots that it can be rolled back to."""
    yield read_build(table)
    for snapshot in table.metadata.snapshots:
        text = snapshot.summary.additional_properties.get(KEY) if snapshot.summary else None
        if text:
            yield BuildLedger.from_json(text)
