"""The data files of a snapshot and the position deletes that apply to them, read from manifests without Spark.

Manifests are immutable, so their entries are cached by path: reading a new snapshot costs its manifest list and its new
manifests.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestFile
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask, Table
from pyiceberg.typedef import Record
from pyiceberg.types import DateType, IntegerType, LongType, TimestampType, TimestamptzType

from headrace.bounded_cache import BoundedCache
from headrace.errors import BuildError
from headrace.iceberg.commits.build_phases import phase
from headrace.iceberg.pyiceberg_private.manifest_reads import manifests_of

MOST_FILES = 20_000
"""How many manifest entries are cached, and how many files of whole snapshots. An entry of 35 columns takes 5 to 9 KB."""

_PATH_ID = 2147483546
"""The field id of `file_path` in files of position deletes."""

_INTEGERS = (IntegerType, LongType, DateType, TimestampType, TimestamptzType)
"""Types whose bounds are little-endian integers of four or eight bytes."""

_NO_BOUNDS: dict[int, bytes] = {}
_Partition = tuple[int, Record]


@dataclass(frozen=True)
class LiveFile:
    """A data file of a snapshot and the position-delete files that may hold positions of it."""

    file: DataFile
    sequence_number: int
    deletes: tuple[DataFile, ...] = ()

    @property
    def path(self) -> str:
        return self.file.file_path

    @property
    def rows(self) -> int:
        """The number of rows in the file, deleted ones included."""
        return self.file.record_count

    @property
    def task(self) -> FileScanTask:
        """The file's scan task for PyIceberg."""
        return FileScanTask(self.file, delete_files=set(self.deletes))

    @property
    def size(self) -> int:
        """The size of the file in bytes."""
        return self.file.file_size_in_bytes


@dataclass(frozen=True)
class _Entry:
    file: DataFile
    sequence_number: int


class LiveFiles:
    """Lists the files of snapshots. Thread-safe; memory is bounded by the number of cached manifest entries."""

    def __init__(self, *, most_files: int = MOST_FILES) -> None:
        self._manifests: BoundedCache[str, tuple[_Entry, ...]] = BoundedCache(most_files)
        self._snapshots: BoundedCache[tuple[str, int], tuple[LiveFile, ...]] = BoundedCache(most_files)

    @phase("fetch")
    def of(self, table: Table, snapshot_id: int | None) -> tuple[LiveFile, ...]:
        """Return the files of a snapshot, oldest first; None means the table's current snapshot, if it has one.

        Raise a BuildError if the snapshot is gone or has deletes other than Parquet position deletes.
        """
        current = table.metadata.current_snapshot_id if snapshot_id is None else snapshot_id
        if current is None:
            return ()
        key = (str(table.metadata.table_uuid), current)
        return self._snapshots.get_or_build(key, lambda: self._read(table, current), weigh=lambda files: max(len(files), 1))

    def _read(self, table: Table, snapshot_id: int) -> tuple[LiveFile, ...]:
        snapshot = table.metadata.snapshot_by_id(snapshot_id)
        if snapshot is None:
            raise BuildError(
                f"snapshot {snapshot_id} does not exist",
                where=".".join(table.name()),
                next_step="Maintenance expired it, or it was committed after the table was loaded. Load the table again.",
            )
        data: list[_Entry] = []
        deletes: list[_Entry] = []
        for manifest in manifests_of(snapshot, table.io):
            for entry in self._entries(table, manifest):
                (data if entry.file.content == DataFileContent.DATA else deletes).append(entry)
        index = _DeleteIndex(deletes)
        data.sort(key=lambda entry: (entry.sequence_number, entry.file.file_path))
        return tuple(LiveFile(entry.file, entry.sequence_number, index.deletes_of(entry)) for entry in data)

    def _entries(self, table: Table, manifest: ManifestFile) -> tuple[_Entry, ...]:
        def read() -> tuple[_Entry, ...]:
            entries = manifest.fetch_manifest_entry(table.io, discard_deleted=True)
            for entry in entries:
                _check_content(table, entry.data_file)
            return tuple(_Entry(entry.data_file, entry.sequence_number or 0) for entry in entries)

        return self._manifests.get_or_build(manifest.manifest_path, read, weigh=lambda entries: max(len(entries), 1))


class _DeleteIndex:
    """Finds the position deletes of a data file by the rules of the Iceberg specification.

    A delete file applies if it is not older than the data file and either has the path as both bounds, or is in the same
    partition of the same spec and has bounds around the path. It may list other files too, so readers compare paths.
    """

    def __init__(self, deletes: Iterable[_Entry]) -> None:
        self._by_path: dict[str, list[_Entry]] = defaultdict(list)
        self._by_partition: dict[_Partition, list[tuple[_Entry, bytes, bytes | None]]] = defaultdict(list)
        for entry in deletes:
            low = (entry.file.lower_bounds or {}).get(_PATH_ID, b"")
            high = (entry.file.upper_bounds or {}).get(_PATH_ID)
            if low and low == high:
                self._by_path[low.decode()].append(entry)
            else:
                self._by_partition[_partition(entry.file)].append((entry, low, high))

    def deletes_of(self, data: _Entry) -> tuple[DataFile, ...]:
        path = data.file.file_path.encode()
        entries = list(self._by_path.get(data.file.file_path, ()))
        if self._by_partition:
            nearby = self._by_partition.get(_partition(data.file), ())
            entries += [entry for entry, low, high in nearby if low <= path and (high is None or path <= high)]
        return tuple(entry.file for entry in entries if entry.sequence_number >= data.sequence_number)


def bounds_field(schema: Schema, column: str) -> int:
    """Return the field id of a column of integers, dates or timestamps, the key of its bounds in manifests.

    Raise a TypeError for a column of another type.
    """
    field = schema.find_field(column)
    if not isinstance(field.field_type, _INTEGERS):
        raise TypeError(f"{column} is a {field.field_type}: only integers, dates and timestamps have integer bounds")
    return field.field_id


def has_bounds(schema: Schema, column: str) -> bool:
    """Return whether manifests can hold integer bounds of a column; False for a column that the table lacks."""
    return any(field.name == column and isinstance(field.field_type, _INTEGERS) for field in schema.fields)


def may_hold(file: DataFile, field_id: int, low: int, high: int) -> bool:
    """Return whether a file may hold a value from `low` to `high` in a column of integers, dates (days) or timestamps (µs).

    `field_id` is the result of `bounds_field`: look it up once, because a live table has thousands of files. True if the file
    has no bounds for the column, for example because the column was added after the file was written.
    """
    smallest = (file.lower_bounds or _NO_BOUNDS).get(field_id)
    largest = (file.upper_bounds or _NO_BOUNDS).get(field_id)
    return not (smallest and _integer(smallest) > high) and not (largest and _integer(largest) < low)


def bounds_of(file: DataFile, field_id: int) -> tuple[int, int] | None:
    """Return the bounds of a column in a file, or None if the file has none."""
    smallest = (file.lower_bounds or _NO_BOUNDS).get(field_id)
    largest = (file.upper_bounds or _NO_BOUNDS).get(field_id)
    return (_integer(smallest), _integer(largest)) if smallest and largest else None


def _integer(bound: bytes) -> int:
    return int.from_bytes(bound, "little", signed=True)


def _partition(file: DataFile) -> _Partition:
    return file.spec_id, file.partition


def _check_content(table: Table, file: DataFile) -> None:
    if file.content == DataFileContent.EQUALITY_DELETES:
        problem = "equality deletes are not supported"
    elif file.file_format != FileFormat.PARQUET:
        problem = f"files of format {file.file_format.value} are not supported"
    else:
        return
    raise BuildError(
        f"{problem}: {file.file_path}",
        where=".".join(table.name()),
        next_step="Another engine wrote this file. Rewrite the table's files there, as Parquet with position deletes.",
    )
