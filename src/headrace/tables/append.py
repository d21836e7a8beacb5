"""Appends ready data files to a table, once, whatever happens to the catalog's answers."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from pyiceberg.catalog import Catalog
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import AssertTableUUID, RemoveSnapshotsUpdate

from headrace.errors import TakenOverError
from headrace.tables.commit import commit_once
from headrace.tables.history import snapshots_to_drop
from headrace.tables.ledger import KEY, Ledger, read_ledger


def append_checkpoint(catalog: Catalog, table: Table, *, files: Sequence[DataFile], planned: Ledger, new: Ledger) -> Table:
    """Gives back the table with `files` and the ledger entry `new` in one snapshot.

    Idempotent by `new.writer`. The table's ledger must still be `planned`: if another application has moved it, a
    TakenOverError is raised and nothing is changed; so it is if the table was rolled back. A conflict with someone who left
    the ledger alone (compaction) is tried again.
    """

    def is_there(table: Table) -> bool:
        found = read_ledger(table)
        if found.writer == new.writer:
            return True
        if found.writer != planned.writer:
            raise TakenOverError(
                f"another application has landed checkpoint {found.checkpoint_id} since this one planned its batch",
                where=".".join(table.name()),
                next_step="Nothing was lost and nothing was written twice. Keep one of the two applications.",
            )
        if found.snapshot_id != planned.snapshot_id:
            raise TakenOverError(
                "the table was rolled back since this application planned its batch",
                where=".".join(table.name()),
                next_step="Nothing was committed. Start again: what the table no longer holds is landed again.",
            )
        return False

    return append_once(
        catalog,
        table,
        files=files,
        entry=lambda snapshot_id, sequence: {KEY: replace(new, snapshot_id=snapshot_id, sequence_number=sequence).to_json()},
        is_there=is_there,
    )


def append_once(
    catalog: Catalog,
    table: Table,
    *,
    files: Sequence[DataFile],
    entry: Callable[[int, int], Mapping[str, str]],
    is_there: Callable[[Table], bool],
) -> Table:
    """Gives back the table with `files` and the properties `entry(snapshot id, sequence number)` in one snapshot.

    After a conflict or a lost answer the table is read again, and `is_there` says whether the commit came through; only if it
    did not is it tried again. `is_there` may raise to give up.
    """
    held = table

    def find() -> Table | None:
        nonlocal held
        held = catalog.load_table(table.name())
        return held if is_there(held) else None

    return commit_once(lambda: _commit(catalog, held, files=files, entry=entry), find=find, where=".".join(table.name()))


def _commit(
    catalog: Catalog, table: Table, *, files: Sequence[DataFile], entry: Callable[[int, int], Mapping[str, str]]
) -> Table:
    """Commits once. PyIceberg's own commit would repeat itself on a conflict without looking at the ledger again."""
    transaction = _Transaction(table)
    append = transaction.update_snapshot().merge_append()
    properties = dict(entry(append.snapshot_id, table.metadata.next_sequence_number()))
    append.snapshot_properties = properties
    for file in files:
        append.append_data_file(file)
    append.commit()
    transaction.set_properties(properties)
    updates = transaction._updates
    protected = {ref.snapshot_id for ref in table.metadata.refs.values()}
    dropped = snapshots_to_drop(table.metadata.snapshots, protected=protected, now_ms=time.time_ns() // 1_000_000)
    if dropped:
        updates = (*updates, RemoveSnapshotsUpdate(snapshot_ids=dropped))  # type: ignore[call-arg]
    requirements = (*transaction._requirements, AssertTableUUID(uuid=table.metadata.table_uuid))
    response = catalog.commit_table(table, requirements, updates)
    catalog._delete_old_metadata(table.io, table.metadata, response.metadata)
    table.metadata = response.metadata
    table.metadata_location = response.metadata_location
    return table


class _Transaction(Transaction):
    """A transaction that looks at the table's metadata without copying all of it each time."""

    @property
    def table_metadata(self) -> TableMetadata:
        return super().table_metadata if self._updates else self._table.metadata
