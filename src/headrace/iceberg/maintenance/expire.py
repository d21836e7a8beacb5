"""Expire snapshots that are no longer needed. Their files are removed later, as orphan files (orphans.py)."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.update import AssertRefSnapshotId, AssertTableUUID, RemoveSnapshotsUpdate

from headrace.iceberg.commits.commit import commit_once
from headrace.iceberg.commits.history import Dated
from headrace.iceberg.pyiceberg_private.metadata_files import delete_old_metadata
from headrace.spec.model.pipeline import TableName


def snapshots_to_expire(snapshots: Sequence[Dated], *, protected: Collection[int], before_ms: int) -> list[int]:
    """Return the ids of snapshots that are older than `before_ms` and not in `protected`."""
    return [
        snapshot.snapshot_id
        for snapshot in snapshots
        if snapshot.timestamp_ms < before_ms and snapshot.snapshot_id not in protected
    ]


def snapshots_of(table: Table) -> frozenset[int]:
    """Return the snapshots that the table itself needs: the current one, and the ones of branches and tags."""
    current = table.current_snapshot()
    named = {ref.snapshot_id for ref in table.metadata.refs.values()}
    return frozenset(named | ({current.snapshot_id} if current else set()))


def expire_snapshots(catalog: Catalog, name: TableName, *, readers: Collection[int], before_ms: int) -> int:
    """Expire old snapshots and return their number. Idempotent. `readers` are snapshots that downstream tables still need."""

    def commit() -> int:
        table = catalog.load_table(str(name))
        protected = {*snapshots_of(table), *readers}
        expired = snapshots_to_expire(table.metadata.snapshots, protected=protected, before_ms=before_ms)
        if not expired:
            return 0
        current = table.current_snapshot()
        requirements = (
            AssertTableUUID(uuid=table.metadata.table_uuid),
            # After a concurrent commit or rollback, the retry computes the needed snapshots again.
            AssertRefSnapshotId(ref=MAIN_BRANCH, snapshot_id=current.snapshot_id if current else None),  # type: ignore[call-arg]
        )
        response = catalog.commit_table(table, requirements, (RemoveSnapshotsUpdate(snapshot_ids=expired),))  # type: ignore[call-arg]
        delete_old_metadata(catalog, table, response.metadata)
        return len(expired)

    return commit_once(commit, find=lambda: None, where=str(name))
