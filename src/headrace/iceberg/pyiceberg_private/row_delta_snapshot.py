"""Write the snapshot of a row delta with PyIceberg.

PyIceberg 0.12 reads position deletes but can't write them, so the snapshot's manifests are written here.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile, ManifestContent, ManifestEntry, ManifestFile, ManifestWriter
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.table import TableProperties, Transaction
from pyiceberg.table.snapshots import Operation, SnapshotSummaryCollector, Summary, update_snapshot_summaries
from pyiceberg.table.update.snapshot import _ManifestMergeManager, _SnapshotProducer
from pyiceberg.typedef import EMPTY_DICT
from pyiceberg.utils.properties import property_as_bool, property_as_int

from headrace.iceberg.commits.build_attempt import compacted_error
from headrace.iceberg.commits.row_delta import RowDelta
from headrace.iceberg.files.manifests import may_hold
from headrace.iceberg.pyiceberg_private.delete_manifests import DeleteManifestWriter
from headrace.iceberg.pyiceberg_private.manifest_reads import manifests_of
from headrace.iceberg.pyiceberg_private.manifest_writes import use_prepared_schemas

use_prepared_schemas()

MANY_MANIFESTS = 24
"""The default number of manifests that are merged into one. Iceberg's default is 100: a table that is built every second would
read and write a list of 50 to 100 manifests in each commit, which costs more than merging them."""


class RowDeltaSnapshot(_SnapshotProducer["RowDeltaSnapshot"]):
    """A snapshot of one row delta; `commit` stages it in the transaction.

    The caller checks for conflicts (row_delta_conflicts.py). `commit` raises a CompactedError if a removed file is in no
    manifest.
    """

    def __init__(self, transaction: Transaction, delta: RowDelta, *, io: FileIO) -> None:
        super().__init__(Operation.OVERWRITE if delta.changes_files else Operation.APPEND, transaction, io)
        self._delta = delta

    def _manifests(self) -> list[ManifestFile]:
        parent = self._transaction.table_metadata.current_snapshot()
        live = [
            manifest
            for manifest in (manifests_of(parent, self._io) if parent else ())
            if manifest.has_added_files() or manifest.has_existing_files()
        ]
        data = [manifest for manifest in live if manifest.content == ManifestContent.DATA]
        deletes = [manifest for manifest in live if manifest.content == ManifestContent.DELETES]
        return [
            *self._changed(data, _DataManifests(self), added=self._delta.added, removed=self._delta.removed),
            *self._changed(deletes, _DeleteManifests(self), added=self._delta.deletes, removed=self._delta.outdated),
        ]

    def _changed(
        self, manifests: list[ManifestFile], kind: _DataManifests, *, added: Sequence[DataFile], removed: Sequence[DataFile]
    ) -> list[ManifestFile]:
        """Return the manifests of one kind after the delta; many small ones are merged."""
        rest = self._without(manifests, kind, removed)  # first: it raises before anything is written
        by_spec: dict[int, list[DataFile]] = defaultdict(list)
        for file in added:
            by_spec[file.spec_id].append(file)
        new = []
        for spec_id, files in by_spec.items():
            with kind.new_manifest_writer(self.spec(spec_id)) as writer:
                for file in files:
                    writer.add(ManifestEntry.from_args(data_file=file))
            new.append(writer.to_manifest_file())
        return kind.merge([*new, *rest])

    def _without(self, manifests: list[ManifestFile], kind: _DataManifests, removed: Sequence[DataFile]) -> list[ManifestFile]:
        """Return the manifests; one that holds removed files is rewritten and marks them as deleted."""
        missing = {file.file_path: file for file in removed}
        schema, changed = self.schema(), {}
        for manifest in manifests:
            spec = self.spec(manifest.partition_spec_id)
            if not any(may_hold(manifest, file, spec.partition_type(schema)) for file in missing.values()):
                continue
            entries = self.fetch_manifest_entry(manifest)
            if any(entry.data_file.file_path in missing for entry in entries):
                changed[manifest.manifest_path] = [(entry, missing.pop(entry.data_file.file_path, None)) for entry in entries]
        if missing:
            raise compacted_error(".".join(self._transaction._table.name()))
        return [
            self._rewritten(manifest, kind, changed[manifest.manifest_path]) if manifest.manifest_path in changed else manifest
            for manifest in manifests
        ]

    def _rewritten(
        self, manifest: ManifestFile, kind: _DataManifests, entries: Sequence[tuple[ManifestEntry, DataFile | None]]
    ) -> ManifestFile:
        with kind.new_manifest_writer(self.spec(manifest.partition_spec_id)) as writer:
            for entry, removed in entries:
                if removed is None:
                    writer.existing(entry)
                else:
                    writer.delete(entry)
        return writer.to_manifest_file()

    def _summary(self, snapshot_properties: Mapping[str, str] = EMPTY_DICT) -> Summary:
        metadata = self._transaction.table_metadata
        limit = property_as_int(metadata.properties, TableProperties.WRITE_PARTITION_SUMMARY_LIMIT, 0)
        collector = SnapshotSummaryCollector(partition_summary_limit=limit or 0)
        specs, schema = metadata.specs(), metadata.schema()
        for file in (*self._delta.added, *self._delta.deletes):
            collector.add_file(file, schema, specs[file.spec_id])
        for file in (*self._delta.removed, *self._delta.outdated):
            collector.remove_file(file, schema, specs[file.spec_id])
        parent = metadata.current_snapshot()
        return update_snapshot_summaries(
            Summary(operation=self._operation, **collector.build(), **snapshot_properties),
            parent.summary if parent else None,
        )

    def _deleted_entries(self) -> list[ManifestEntry]:
        return []  # `_manifests` writes them itself

    def _existing_manifests(self) -> list[ManifestFile]:
        return []  # `_manifests` keeps them itself


class _DataManifests:
    """Writes and merges manifests of data files, with the attributes that PyIceberg's merge manager needs."""

    def __init__(self, snapshot: RowDeltaSnapshot) -> None:
        self._snapshot = snapshot
        self.snapshot_id = snapshot.snapshot_id
        self.spec = snapshot.spec
        self.fetch_manifest_entry = snapshot.fetch_manifest_entry

    def new_manifest_writer(self, spec: PartitionSpec) -> ManifestWriter:
        return self._snapshot.new_manifest_writer(spec)

    def merge(self, manifests: list[ManifestFile]) -> list[ManifestFile]:
        names, properties = TableProperties, self._snapshot._transaction.table_metadata.properties
        count, size = MANY_MANIFESTS, names.MANIFEST_TARGET_SIZE_BYTES_DEFAULT
        return _ManifestMergeManager(
            target_size_bytes=property_as_int(properties, names.MANIFEST_TARGET_SIZE_BYTES, size) or size,
            min_count_to_merge=property_as_int(properties, names.MANIFEST_MIN_MERGE_COUNT, count) or count,
            merge_enabled=property_as_bool(properties, names.MANIFEST_MERGE_ENABLED, True),  # as Java does
            snapshot_producer=self,  # type: ignore[arg-type]
        ).merge_manifests(manifests)


class _DeleteManifests(_DataManifests):
    """Writes and merges manifests of delete files."""

    def new_manifest_writer(self, spec: PartitionSpec) -> ManifestWriter:
        snapshot = self._snapshot
        return DeleteManifestWriter(
            spec, snapshot.schema(), snapshot.new_manifest_output(), snapshot.snapshot_id, snapshot._compression
        )
