"""What those who read a table still need of its past."""

from __future__ import annotations

from collections.abc import Iterator

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from headrace.spec.pipeline import Pipeline, TableName
from headrace.tables.build_ledger import KEY, BuildLedger, read_build
from headrace.tables.catalog import load_table


def snapshots_read(catalog: Catalog, pipeline: Pipeline, name: TableName) -> frozenset[int]:
    """Gives back the snapshots of a table that the last builds of its readers say they have read."""
    entries = (read_build(load_table(catalog, each.table)) for each in pipeline.tables if name in each.inputs)
    states = (entry.reads.get(str(name)) for entry in entries)
    return frozenset(state.snapshot_id for state in states if state and state.snapshot_id is not None)


def position_passed(catalog: Catalog, pipeline: Pipeline, name: TableName) -> int:
    """Gives back the build of a table up to which all who follow it have read, and would have after any rollback of theirs.

    A reader that was never built, or saw another generation of the table, reads all of it anew and needs nothing of its past.
    """
    own = read_build(load_table(catalog, name))
    followers = [each.table for each in pipeline.tables if name in each.change_sources]
    tables = [found for each in followers if (found := load_table(catalog, each)) is not None]
    states = [entry.reads[str(name)] for table in tables for entry in _entries(table) if str(name) in entry.reads]
    return min((state.position for state in states if state.generation == own.generation), default=own.changed_in)


def _entries(table: Table) -> Iterator[BuildLedger]:
    """Gives back the table's newest entry and those of all snapshots that it can be rolled back to."""
    yield read_build(table)
    for snapshot in table.metadata.snapshots:
        text = snapshot.summary.additional_properties.get(KEY) if snapshot.summary else None
        if text:
            yield BuildLedger.from_json(text)
