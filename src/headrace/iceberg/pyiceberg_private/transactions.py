"""Commit a PyIceberg transaction in one attempt, and read its staged updates."""

from __future__ import annotations

import time
from collections.abc import Collection

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import AssertTableUUID, RemoveSnapshotsUpdate, TableRequirement, TableUpdate

from headrace.iceberg.commits.history import retention_of, snapshots_to_drop
from headrace.iceberg.pyiceberg_private.metadata_files import delete_old_metadata


class TableTransaction(Transaction):
    """A transaction that reads the table's metadata without copying it each time, and commits without retries."""

    @property
    def table_metadata(self) -> TableMetadata:
        return super().table_metadata if self._updates else self._table.metadata

    def commit_once(self, catalog: Catalog, *requirements: TableRequirement, readers: Collection[int] = ()) -> Table:
        """Commit in one attempt, remove old snapshots in the same commit, and return the table.

        `readers` are snapshots that other tables have read up to, which are retained for a while (history.py). PyIceberg's own
        commit retries after a conflict without checking the table's ledger.
        """
        table, updates = self._table, self._updates
        protected = {ref.snapshot_id for ref in table.metadata.refs.values()}
        now_ms = time.time_ns() // 1_000_000
        dropped = snapshots_to_drop(
            table.metadata.snapshots,
            protected=protected,
            readers=readers,
            now_ms=now_ms,
            snapshots_for_ms=retention_of(table.properties),
        )
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
    """Return the requirements that a transaction would send to the catalog."""
    return transaction._requirements
