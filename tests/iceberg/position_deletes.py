"""Write and commit position deletes with PyIceberg only."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog import Catalog
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    ManifestWriterV2,
)
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.update.snapshot import _FastAppendFiles
from pyiceberg.typedef import Record

PATH_ID, POSITION_ID = 2147483546, 2147483545
_SCHEMA = pa.schema(
    [
        pa.field("file_path", pa.string(), nullable=False, metadata={"PARQUET:field_id": str(PATH_ID)}),
        pa.field("pos", pa.int64(), nullable=False, metadata={"PARQUET:field_id": str(POSITION_ID)}),
    ]
)


class _DeleteManifest(ManifestWriterV2):
    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}


class _AddDeletes(_FastAppendFiles):
    deletes: Sequence[DataFile] = ()

    def _manifests(self) -> list[ManifestFile]:
        metadata = self._transaction.table_metadata
        manifests = super()._manifests()
        for spec_id in sorted({file.spec_id for file in self.deletes}):
            path = self._transaction._table.location_provider().new_metadata_location(f"{uuid.uuid4()}-deletes.avro")
            output = self._io.new_output(path)
            writer = _DeleteManifest(metadata.specs()[spec_id], metadata.schema(), output, self._snapshot_id, "deflate")
            with writer:
                for file in self.deletes:
                    if file.spec_id == spec_id:
                        writer.add(
                            ManifestEntry.from_args(
                                status=ManifestEntryStatus.ADDED,
                                snapshot_id=self._snapshot_id,
                                sequence_number=None,
                                file_sequence_number=None,
                                data_file=file,
                            )
                        )
            manifests = [writer.to_manifest_file(), *manifests]
        return manifests


@dataclass(frozen=True)
class Place:
    """Where a delete file belongs, and what it says of the paths in it."""

    partition: Record
    spec_id: int = 0
    bounds: tuple[str, str] | None = None
    content: DataFileContent = DataFileContent.POSITION_DELETES


def write_deletes(table: Table, positions: Mapping[str, Sequence[int]], place: Place) -> DataFile:
    """Return a file of position deletes of some data files that no snapshot refers to yet."""
    pairs = [(path, position) for path in sorted(positions) for position in sorted(positions[path])]
    rows = pa.table([[path for path, _ in pairs], [position for _, position in pairs]], schema=_SCHEMA)
    uri = f"{table.location()}/data/{uuid.uuid4()}-deletes.parquet"
    with table.io.new_output(uri).create() as stream:
        pq.write_table(rows, stream)
    low, high = place.bounds or (None, None)
    arguments: dict[str, Any] = {
        "content": place.content,
        "file_path": uri,
        "file_format": FileFormat.PARQUET,
        "partition": place.partition,
        "record_count": rows.num_rows,
        "file_size_in_bytes": len(table.io.new_input(uri)),
        "lower_bounds": {PATH_ID: low.encode()} if low else {},
        "upper_bounds": {PATH_ID: high.encode()} if high else {},
        "equality_ids": [1] if place.content == DataFileContent.EQUALITY_DELETES else None,
    }
    file = DataFile.from_args(**arguments)
    file.spec_id = place.spec_id
    return file


def commit_deletes(catalog: Catalog, table: Table, *files: DataFile) -> Table:
    """Commit delete files and return the table after it."""
    transaction = table.transaction()
    producer = _AddDeletes(Operation.OVERWRITE, transaction, table.io)
    producer.deletes = files
    producer.commit()
    transaction.commit_transaction()
    return catalog.load_table(table.name())


def delete_rows(catalog: Catalog, table: Table, positions: Mapping[str, Sequence[int]]) -> Table:
    """Delete rows of data files by their numbers, a delete file for each data file, and return the table after it."""
    data = {task.file.file_path: task.file for task in table.scan().plan_files()}
    files = [
        write_deletes(table, {path: numbers}, Place(data[path].partition, data[path].spec_id, (path, path)))
        for path, numbers in positions.items()
        if numbers
    ]
    return commit_deletes(catalog, table, *files) if files else table
