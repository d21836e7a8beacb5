"""List a table's partitions by their path in Iceberg: `created_at_month=2026-01`."""

from __future__ import annotations

from collections.abc import Iterable

from pyiceberg.manifest import DataFile, ManifestEntry, ManifestEntryStatus
from pyiceberg.table import Table


def list_partitions(table: Table) -> tuple[str, ...]:
    """Return the partitions that have data files, sorted; none for an unpartitioned table."""
    snapshot = table.current_snapshot()
    if snapshot is None or not table.spec().fields:
        return ()
    return _names(table, (task.file for task in table.scan().plan_files()))


def changed_partitions(table: Table, snapshot_id: int) -> tuple[str, ...]:
    """Return the partitions in which a snapshot added or removed files, sorted; none if the snapshot is expired."""
    snapshot = table.snapshot_by_id(snapshot_id)
    if snapshot is None or not table.spec().fields:
        return ()
    manifests = [manifest for manifest in snapshot.manifests(table.io) if manifest.added_snapshot_id == snapshot_id]
    entries: Iterable[ManifestEntry] = (
        entry
        for manifest in manifests
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=False)
        if entry.status != ManifestEntryStatus.EXISTING and entry.snapshot_id == snapshot_id
    )
    return _names(table, (entry.data_file for entry in entries))


def _names(table: Table, files: Iterable[DataFile]) -> tuple[str, ...]:
    specs, schema = table.specs(), table.schema()
    return tuple(sorted({specs[file.spec_id].partition_to_path(file.partition, schema) for file in files}))
