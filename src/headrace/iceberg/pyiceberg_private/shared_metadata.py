"""Table metadata without deep copies.

PyIceberg makes a deep copy of a table's metadata, with every snapshot, for each commit, although it applies changes to shallow
copies. With a hundred snapshots the copy takes longer than writing a build's files.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyiceberg.table.metadata import TableMetadata, TableMetadataV2
from pyiceberg.table.snapshots import Snapshot
from typing_extensions import Self


class SharedMetadata(TableMetadataV2):
    """Metadata whose copies share their values. Treat the values as immutable."""

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        return super().model_copy(update=update, deep=False)

    def snapshot_by_id(self, snapshot_id: int) -> Snapshot | None:
        """Return a snapshot, searched from the newest one: nearly every lookup is for the current snapshot."""
        return next((snapshot for snapshot in reversed(self.snapshots) if snapshot.snapshot_id == snapshot_id), None)


def share_metadata(metadata: TableMetadata) -> TableMetadata:
    """Return the same metadata in a form that is cheap to copy; return other format versions unchanged."""
    if not isinstance(metadata, TableMetadataV2) or isinstance(metadata, SharedMetadata):
        return metadata
    values = {name: getattr(metadata, name) for name in TableMetadataV2.model_fields}
    return SharedMetadata.model_construct(_fields_set=metadata.model_fields_set, **values)
