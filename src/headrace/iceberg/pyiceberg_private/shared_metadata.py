"""Table metadata that is never copied as a whole.

PyIceberg copies a table's metadata deeply for every commit, with each snapshot in it, although a change is always made on a
shallow copy. With a hundred snapshots that takes longer than writing the build's files.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyiceberg.table.metadata import TableMetadata, TableMetadataV2
from pyiceberg.table.snapshots import Snapshot
from typing_extensions import Self


class SharedMetadata(TableMetadataV2):
    """Metadata whose copies share what they don't change. Nobody may change a value inside it."""

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        return super().model_copy(update=update, deep=False)

    def snapshot_by_id(self, snapshot_id: int) -> Snapshot | None:
        """Return a snapshot, searched from the newest on: nearly every look-up is for the current one."""
        return next((each for each in reversed(self.snapshots) if each.snapshot_id == snapshot_id), None)


def share_metadata(metadata: TableMetadata) -> TableMetadata:
    """Return the same metadata in a form that is cheap to copy; other format versions stay as they are."""
    if not isinstance(metadata, TableMetadataV2) or isinstance(metadata, SharedMetadata):
        return metadata
    values = {name: getattr(metadata, name) for name in TableMetadataV2.model_fields}
    return SharedMetadata.model_construct(_fields_set=metadata.model_fields_set, **values)
