"""How big a table is: what maintenance shows before and after."""

from __future__ import annotations

from dataclasses import dataclass

from pyiceberg.manifest import ManifestContent, ManifestFile
from pyiceberg.table import Table


@dataclass(frozen=True)
class TableSize:
    """What a table's current snapshot refers to, and how many snapshots there are."""

    files: int = 0
    bytes: int = 0
    delete_files: int = 0
    snapshots: int = 0
    manifests: int = 0


def read_size(table: Table) -> TableSize:
    current = table.current_snapshot()
    if current is None:
        return TableSize(snapshots=len(table.metadata.snapshots))
    said = current.summary.additional_properties if current.summary else {}
    return TableSize(
        files=int(said.get("total-data-files", 0)),
        bytes=int(said.get("total-files-size", 0)),
        delete_files=int(said.get("total-delete-files", 0)),
        snapshots=len(table.metadata.snapshots),
        manifests=len(current.manifests(table.io)),
    )


def data_manifests(table: Table) -> tuple[ManifestFile, ...]:
    current = table.current_snapshot()
    found = current.manifests(table.io) if current else []
    return tuple(each for each in found if each.content == ManifestContent.DATA)
