"""Read what PyIceberg stages in a transaction, and commit it in one attempt."""

from __future__ import annotations

import time
from collections.abc import Collection

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import AssertTableUUID, RemoveSnapshotsUpdate, TableRequirement, TableUpdate

from headrace.iceberg.commits.history import snapshots_to_drop
from headrace.iceberg.pyiceberg_private.metadata_files import delete_old_metadata


class TableTransaction(Transaction):
    """A transaction that reads the table's metadata without copying it each time, and that the catalog commits once."""

    @property
    def table_metadata(self) -> TableMetadata:
        return super().table_metadata if self._updates else self._table.metadata

    def commit_once(self, catalog: Catalog, *requirements: TableRequirement, readers: Collection[int] = ()) -> Table:
        """Return the table after one attempt to commit; old snapshots leave its history in the same commit.

        `readers` are snapshots that other tables have read up to, which stay for a while (history.py). PyIceberg's own commit
        repeats itself after a conflict, without a look at the table's ledger.
        """
        table, updates = self._table, self._updates
        protected = {ref.snapshot_id for ref in table.metadata.refs.values()}
        now_ms = time.time_ns() // 1_000_000
        dropped = snapshots_to_drop(table.metadata.snapshots, protected=protected, readers=readers, now_ms=now_ms)
        if dropped:
            updates = (*updates, RemoveSnapshotsUpdate(snapshot_ids=dropped))  # type: ignore[call-arg]
        same_table = AssertTableUUID(uuid=table.metadata.table_uuid)
        response = catalog.commit_table(table, (*self._requirements, *requirements, same_table), updates)
        delete_old_metadata(catalog, table, response.metadata)
        table.metadata = response.metadata
        table.metadata_location = response.metadata_location
        return table


def staged_updates(transaction: Transaction) -> tuple[TableUpdate, ...]:
    """Return the updates that a transaction would send to the catalog."""
    return transaction._updates


def staged_requirements(transaction: Transaction) -> tuple[TableRequirement, ...]:
    """Return what a transaction asks of the table when the catalog commits it."""
    return transaction._requirements
