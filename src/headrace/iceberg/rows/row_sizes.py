"""Estimate the size of data files' rows as Arrow from the column metrics in manifests.

A build whose files exceed the row store would evict each file before its next use, and rewrite it in every build. The estimate
detects this before the first file is fetched.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    MapType,
    NestedField,
    StringType,
    StructType,
    UUIDType,
)

from headrace.iceberg.files.live_files import LiveFile

MEMORY_ROWS = 2_048
"""Files with at most this many rows stay in memory and never go to the local disk: every live build writes some, the next
builds read them, and soon they are merged."""

_OFFSET, _LEAST_TEXT, _COMPRESSED = 4, 8, 3
"""A string takes an offset and its bytes: three times its compressed size, as for JSON and names, but at least eight."""

_INDEX_ROW = 12


class TooLargeError(Exception):
    """The rows exceed the row store's bound. Read them without it, for example with Spark."""


@dataclass
class WorkingSet:
    """The files from which a build has fetched rows, at most `most_bytes` in total."""

    most_bytes: int
    _sizes: dict[str, int] = field(default_factory=dict)

    def add(self, files: Iterable[LiveFile], schema: Schema) -> None:
        """Add files before fetching rows from them. Raise a TooLargeError if all files together exceed the bound."""
        for file in files:
            if file.path not in self._sizes:
                self._sizes[file.path] = estimate_bytes(file.file, schema)
        total = sum(self._sizes.values())
        if total > self.most_bytes:
            raise TooLargeError(
                f"the rows of the build's input files take about {total:,} bytes, more than {self.most_bytes:,}"
            )


def estimate_bytes(file: DataFile, schema: Schema) -> int:
    """Return the estimated size of a file's rows and an index on the local disk: 0 if they stay in memory."""
    if file.record_count <= MEMORY_ROWS:
        return 0
    sizes, values = file.column_sizes or {}, file.value_counts or {}
    total = file.record_count * _INDEX_ROW
    for leaf in _leaves(schema.fields):
        count = values.get(leaf.field_id, file.record_count)
        total += _estimate_column(leaf.field_type, count, sizes, leaf.field_id)
    return max(total, file.file_size_in_bytes)


def _estimate_column(kind: IcebergType, count: int, sizes: Mapping[int, int], field_id: int) -> int:
    width = _width(kind)
    if width is not None:
        return count * width
    return count * _OFFSET + max(count * _LEAST_TEXT, sizes.get(field_id, 0) * _COMPRESSED)


def _width(kind: IcebergType) -> int | None:
    """Return the number of bytes of a value, or None for types of variable size."""
    if isinstance(kind, (StringType, BinaryType)):
        return None
    if isinstance(kind, BooleanType):
        return 1
    if isinstance(kind, (IntegerType, FloatType, DateType)):
        return 4
    if isinstance(kind, (DecimalType, UUIDType)):
        return 16
    return len(kind) if isinstance(kind, FixedType) else 8


def _leaves(fields: Iterable[NestedField]) -> Iterator[NestedField]:
    for leaf in fields:
        kind = leaf.field_type
        if isinstance(kind, StructType):
            yield from _leaves(kind.fields)
        elif isinstance(kind, ListType):
            yield from _leaves([kind.element_field])
        elif isinstance(kind, MapType):
            yield from _leaves([kind.key_field, kind.value_field])
        else:
            yield leaf
