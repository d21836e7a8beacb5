"""Rewrite a table's manifests with only its live files.

The manifests of earlier snapshots name deleted files, with the bounds of their columns. The new ones don't.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestContent, ManifestEntry, ManifestFile, ManifestWriter
from pyiceberg.table import Transaction
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.update.snapshot import _SnapshotProducer

from headrace.iceberg.pyiceberg_private.delete_manifests import DeleteManifestWriter
from headrace.iceberg.pyiceberg_private.manifest_writes import use_prepared_schemas

use_prepared_schemas()


class LiveSnapshot(_SnapshotProducer["LiveSnapshot"]):
    """A snapshot of the same rows with new manifests; `commit` stages it in the transaction."""

    def __init__(self, transaction: Transaction, *, io: FileIO, properties: Mapping[str, str]) -> None:
        super().__init__(Operation.OVERWRITE, transaction, io, snapshot_properties=dict(properties))

    def _deleted_entries(self) -> list[ManifestEntry]:
        return []

    def _existing_manifests(self) -> list[ManifestFile]:
        current = self._transaction.table_metadata.current_snapshot()
        live: Mapping[tuple[int, ManifestContent], list[ManifestEntry]] = defaultdict(list)
        for manifest in current.manifests(self._io) if current else ():
            kind = manifest.partition_spec_id, manifest.content
            live[kind].extend(manifest.fetch_manifest_entry(self._io, discard_deleted=True))
        manifests = []
        for (spec_id, content), entries in live.items():
            if entries:
                with self._writer(spec_id, content) as writer:
                    for entry in entries:
                        writer.existing(entry)
                manifests.append(writer.to_manifest_file())
        return manifests

    def _writer(self, spec_id: int, content: ManifestContent) -> ManifestWriter:
        if content == ManifestContent.DATA:
            return self.new_manifest_writer(self.spec(spec_id))
        return DeleteManifestWriter(
            self.spec(spec_id), self.schema(), self.new_manifest_output(), self._snapshot_id, self._compression
        )
