"""What those who read a table still need of its past."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from threading import Lock

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from headrace.iceberg.catalog.tables import load_table
from headrace.iceberg.ledgers.build import KEY, BuildLedger, InputState, read_build
from headrace.spec.model.pipeline import Pipeline, TableName


class ReadSnapshots:
    """The snapshots that tables have read up to, as far as this process knows. Thread-safe.

    A commit leaves them in its table's history without reading the metadata of other tables, so it may miss what another
    process built. A table whose snapshot is gone computes more than it has to, and the same rows.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._by_reader: dict[TableName, Mapping[str, frozenset[int]]] = {}

    def note(self, reader: TableName, *reads: Mapping[str, InputState]) -> None:
        """Note the positions that a table has read up to, or is reading up to, in place of those noted before."""
        names = {name for states in reads for name in states}
        found = {name: [states[name].snapshot_id for states in reads if name in states] for name in names}
        with self._lock:
            self._by_reader[reader] = {
                name: frozenset(snapshot_id for snapshot_id in ids if snapshot_id is not None) for name, ids in found.items()
            }

    def of(self, name: TableName) -> frozenset[int]:
        """Return the snapshots of a table that its readers have read up to."""
        with self._lock:
            return frozenset().union(*(reads.get(str(name), ()) for reads in self._by_reader.values()))


def snapshots_read(catalog: Catalog, pipeline: Pipeline, name: TableName) -> frozenset[int]:
    """Return the snapshots of a table that the last builds of its readers say they have read."""
    entries = (read_build(load_table(catalog, each.table)) for each in pipeline.tables if name in each.inputs)
    states = (entry.reads.get(str(name)) for entry in entries)
    return frozenset(state.snapshot_id for state in states if state and state.snapshot_id is not None)


def position_passed(catalog: Catalog, pipeline: Pipeline, name: TableName) -> int:
    """Return the build of a table up to which all who follow it have read, and would have after any rollback of theirs.

    A reader that was never built, or saw another generation of the table, reads all of it anew and needs nothing of its past.
    """
    own = read_build(load_table(catalog, name))
    followers = [each.table for each in pipeline.tables if name in each.change_sources]
    tables = [found for each in followers if (found := load_table(catalog, each)) is not None]
    states = [entry.reads[str(name)] for table in tables for entry in _entries(table) if str(name) in entry.reads]
    return min((state.position for state in states if state.generation == own.generation), default=own.changed_in)


def _entries(table: Table) -> Iterator[BuildLedger]:
    """Yield the table's newest entry and those of all snapshots that it can be rolled back to."""
    yield read_build(table)
    for snapshot in table.metadata.snapshots:
        text = snapshot.summary.additional_properties.get(KEY) if snapshot.summary else None
        if text:
            yield BuildLedger.from_json(text)
