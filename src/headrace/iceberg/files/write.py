"""Step 4, write: write Arrow tables to Parquet data files for Iceberg, one file for each partition."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform, Transform
from pyiceberg.typedef import Record
from pyiceberg.types import DateType, IcebergType, TimestampType, TimestamptzType

from headrace.bounded_cache import BoundedCache
from headrace.iceberg.files.layout import partition_path
from headrace.iceberg.files.metrics import FileMetrics, columns_with_dictionary, columns_with_statistics
from headrace.iceberg.files.storage import DISK, Storage, new_file
from headrace.iceberg.schema.required import fields_to_check, without_absent_nulls

ROW_GROUP_ROWS = 65_536
ROWS_PER_FILE = 1_000_000
"""The maximum number of rows that a build or an erasure writes to one data file."""

MANY_SMALL = 32
"""With this many small files in a table, a build merges them."""

OpenFile = Callable[[str], AbstractContextManager[pa.NativeFile]]
"""Opens a new file by its URI."""

Written = Callable[[DataFile, pa.Table], None]
"""Called with a written file and its rows in file order."""

_STORED_AS: dict[type[IcebergType], pa.DataType] = {
    DateType: pa.int32(),
    TimestampType: pa.int64(),
    TimestamptzType: pa.int64(),
}
_ROW_GROUP_BYTES = 64 * 1024 * 1024
_OPEN_FILES = 32


@dataclass
class _OpenFile:
    uri: str
    partition: Record
    context: AbstractContextManager[pa.NativeFile]
    stream: pa.NativeFile
    writer: pq.ParquetWriter
    metadata: list[pq.FileMetaData]
    pending: list[pa.Table] = field(default_factory=list)
    rows: int = 0
    bytes: int = 0
    is_flushed: bool = False


class TableFormat:
    """How files of one table are written, computed once from its schema and partition spec."""

    def __init__(self, schema: Schema, spec: PartitionSpec) -> None:
        self.schema = schema
        self.spec = spec
        self.arrow_schema = schema_to_pyarrow(schema)
        self.required = fields_to_check(self.arrow_schema)
        self.statistics = columns_with_statistics(self.arrow_schema)
        self.metrics = FileMetrics(schema, spec)
        sources = [schema.find_field(field.source_id) for field in spec.fields]
        self.partitioners = [
            (source.name, _partitioner(field.transform, source.field_type))
            for source, field in zip(sources, spec.fields, strict=True)
        ]


_formats: BoundedCache[tuple[str, int, int], TableFormat] = BoundedCache(1_024)


def format_of(table: Table) -> TableFormat:
    """Return the format of a table's current schema and partition spec."""
    metadata = table.metadata
    key = (metadata.table_uuid.hex, metadata.current_schema_id, metadata.default_spec_id)
    return _formats.get_or_build(key, lambda: TableFormat(table.schema(), table.spec()))


def _partitioner(transform: Transform[Any, Any], kind: IcebergType) -> Callable[[pa.Array], pa.Array]:
    """Return the function from a column to its partition values as manifests store them: dates and times as numbers."""
    apply = transform.pyarrow_transform(kind)
    stored = _STORED_AS.get(type(kind))
    if not isinstance(transform, IdentityTransform) or stored is None:
        return apply
    return lambda column: apply(column).cast(stored)


class TableFiles:
    """Writes Arrow tables of one format to Parquet files, one file for each partition.

    Files are named `<folder>/<partition>/part-<name>-<n>.parquet`. Memory is bounded by open files and row groups, not by the
    amount of data. `written` is called with every file of a single row group and its rows.
    """

    def __init__(
        self,
        table: TableFormat,
        *,
        folder: str,
        name: str,
        storage: Storage = DISK,
        open_file: OpenFile | None = None,
        written: Written | None = None,
    ) -> None:
        self._table = table
        self._written = written
        self._open_file: OpenFile = open_file or partial(new_file, storage=storage)
        self._folder = folder
        self._name = name
        self._open: OrderedDict[tuple[object, ...], _OpenFile] = OrderedDict()
        self._done: list[DataFile] = []
        self._count = 0
        self._dictionary: list[str] | None = None

    def write(self, table: pa.Table) -> None:
        """Add rows, if there are any; `table` has the columns of the format's `arrow_schema`.

        Raises RequiredNullError, with the field's path, for a null in a required field whose parent is not null.
        """
        for key, part in self._split(without_absent_nulls(table, self._table.required)):
            file = self._open.get(key)
            if file is None:
                file = self._start(key, part)
            self._open.move_to_end(key)
            file.pending.append(part)
            file.rows += part.num_rows
            file.bytes += part.nbytes
            if file.rows >= ROW_GROUP_ROWS or file.bytes >= _ROW_GROUP_BYTES:
                self._flush(file)

    def close(self) -> Sequence[DataFile]:
        """Finish all files and return them; they are durable."""
        while self._open:
            self._finish(next(iter(self._open)))
        return self._done

    def abort(self) -> None:
        """Discard the files that are still open."""
        for file in self._open.values():
            with suppress(Exception):  # after a failed write the writer can't be closed, and the file is discarded anyway
                file.writer.close()
            error = InterruptedError("the batch was aborted")
            file.context.__exit__(type(error), error, None)
        self._open.clear()

    def _split(self, table: pa.Table) -> list[tuple[tuple[object, ...], pa.Table]]:
        if not self._table.partitioners:
            return [((), table)] if table.num_rows else []
        keys = [transform(table.column(name).combine_chunks()) for name, transform in self._table.partitioners]
        if all(len(pc.unique(key)) == 1 for key in keys):
            return [(tuple(key[0].as_py() for key in keys), table)]
        names = [f"key_{index}" for index in range(len(keys))]
        numbered = pa.table([*keys, pa.array(range(table.num_rows), pa.int64())], names=[*names, "row"])
        groups = numbered.group_by(names).aggregate([("row", "list")])
        return [
            (tuple(row[name] for name in names), table.take(pa.array(row["row_list"], pa.int64())))
            for row in groups.to_pylist()
        ]

    def _start(self, key: tuple[object, ...], sample: pa.Table) -> _OpenFile:
        if len(self._open) >= _OPEN_FILES:
            self._finish(next(iter(self._open)))
        if self._dictionary is None:
            self._dictionary = columns_with_dictionary(sample)
        partition = Record(*key)
        folder = "/".join(
            part for part in (self._folder, partition_path(self._table.spec, self._table.schema, partition)) if part
        )
        uri = f"{folder}/part-{self._name}-{self._count}.parquet"
        self._count += 1
        context = self._open_file(uri)
        stream = context.__enter__()
        metadata: list[pq.FileMetaData] = []
        writer = pq.ParquetWriter(
            stream,
            self._table.arrow_schema,
            compression="zstd",
            compression_level=1,
            use_dictionary=self._dictionary,
            write_statistics=self._table.statistics,
            store_schema=False,
            metadata_collector=metadata,
        )
        file = _OpenFile(uri, partition, context, stream, writer, metadata)
        self._open[key] = file
        return file

    def _flush(self, file: _OpenFile) -> None:
        if file.pending:
            file.writer.write_table(pa.concat_tables(file.pending), row_group_size=ROW_GROUP_ROWS)
            file.pending, file.rows, file.bytes, file.is_flushed = [], 0, 0, True

    def _finish(self, key: tuple[object, ...]) -> None:
        file = self._open[key]
        rows = None if file.is_flushed or self._written is None else pa.concat_tables(file.pending)
        self._flush(file)
        file.writer.close()
        size = file.stream.tell()
        file.context.__exit__(None, None, None)
        self._done.append(self._table.metrics.describe(file.metadata[0], uri=file.uri, size=size, partition=file.partition))
        del self._open[key]
        if rows is not None and self._written is not None:
            self._written(self._done[-1], rows)


def check_writable(table: TableFormat, rows: pa.Table) -> None:
    """Raise the error that writing these rows would raise, independent of the storage: write them to memory."""
    files = TableFiles(table, folder="memory:", name="check", open_file=_in_memory)
    try:
        files.write(rows)
        files.close()
    finally:
        files.abort()


@contextmanager
def _in_memory(uri: str) -> Iterator[pa.NativeFile]:
    yield pa.BufferOutputStream()
