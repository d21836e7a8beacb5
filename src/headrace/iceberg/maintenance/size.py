"""A table's size, which maintenance shows before and after."""

from __future__ import annotations

from dataclasses import dataclass

from pyiceberg.manifest import ManifestContent, ManifestFile
from pyiceberg.table import Table


@dataclass(frozen=True)
class TableSize:
    """Files and manifests of the current snapshot, and the number of snapshots."""

    files: int = 0
    bytes: int = 0
    delete_files: int = 0
    snapshots: int = 0
    manifests: int = 0


def read_size(table: Table) -> TableSize:
    current = table.current_snapshot()
    if current is None:
        return TableSize(snapshots=len(table.metadata.snapshots))
    summary = current.summary.additional_properties if current.summary else {}
    return TableSize(
        files=int(summary.get("total-data-files", 0)),
        bytes=int(summary.get("total-files-size", 0)),
        delete_files=int(summary.get("total-delete-files", 0)),
        snapshots=len(table.metadata.snapshots),
        manifests=len(current.manifests(table.io)),
    )


def data_manifests(table: Table) -> tuple[ManifestFile, ...]:
    current = table.current_snapshot()
    manifests = current.manifests(table.io) if current else []
    return tuple(manifest for manifest in manifests if manifest.content == ManifestContent.DATA)
