"""Find rows within ranges of a column: files are pruned by their bounds, rows are compared as numbers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema

from headrace.iceberg.files.live_files import LiveFile, bounds_field, bounds_of, may_hold

Ranges = Mapping[str, Sequence[tuple[object, object]]]
"""Ranges, both ends included, by column of integers, dates or timestamps. A value must be in one of its column's ranges."""


@dataclass(frozen=True)
class Within:
    """Ranges as the integers that files and columns store. Null is within any range."""

    ranges: Mapping[str, tuple[tuple[int, int], ...]]

    @classmethod
    def of(cls, ranges: Ranges, schema: pa.Schema) -> Within:
        """Return the ranges for a table of this Arrow schema. Raises ArrowInvalid if a bound does not fit its column."""

        def number(value: object, kind: pa.DataType) -> int:
            return int(pa.scalar(value, type=kind).cast(pa.int32() if pa.types.is_date32(kind) else pa.int64()).as_py())

        return cls(
            {
                name: tuple(
                    (number(low, schema.field(name).type), number(high, schema.field(name).type)) for low, high in bounds
                )
                for name, bounds in ranges.items()
            }
        )

    def files_with(self, files: Iterable[LiveFile], schema: Schema) -> list[LiveFile]:
        """Return the files that may hold a row within the ranges, including files with nulls in the column."""
        columns = [(bounds_field(schema, name), ranges) for name, ranges in self.ranges.items()]
        return [
            file
            for file in files
            if file.rows
            and all(
                any(may_hold(file.file, field_id, low, high) for low, high in ranges)
                or bool((file.file.null_value_counts or {}).get(field_id))
                for field_id, ranges in columns
            )
        ]

    def covers(self, file: LiveFile, schema: Schema) -> bool:
        """Return whether the file's bounds prove that all of its rows are within the ranges."""
        for name, ranges in self.ranges.items():
            bounds = bounds_of(file.file, bounds_field(schema, name))
            if bounds is None or not any(low <= bounds[0] and bounds[1] <= high for low, high in ranges):
                return False
        return True

    def rows(self, batches: Sequence[pa.RecordBatch | pa.Table]) -> pl.Series:
        """Return the positions of the rows within the ranges, in ascending order."""
        positions, first = [pl.Series([], dtype=pl.Int64)], 0
        for batch in batches:
            if not batch.num_rows:  # pyarrow 25.0.1 crashes the process on a column without chunks
                continue
            is_within = pa.repeat(pa.scalar(True), batch.num_rows)
            for name, ranges in self.ranges.items():
                is_within = pc.and_(is_within, _is_in_one(batch.column(name), ranges))
            positions.append(pl.Series(pc.indices_nonzero(is_within), dtype=pl.Int64) + first)
            first += batch.num_rows
        return pl.concat(positions)


def _is_in_one(column: pa.Array | pa.ChunkedArray, ranges: Sequence[tuple[int, int]]) -> pa.Array | pa.ChunkedArray:
    """Return for each value whether it is in one of the ranges, or null."""
    kind = column.type
    values = column if pa.types.is_integer(kind) else column.cast(pa.int32() if pa.types.is_date32(kind) else pa.int64())
    is_in_one = pc.is_null(column)
    for low, high in ranges:
        is_in = pc.and_(pc.greater_equal(values, low), pc.less_equal(values, high))
        is_in_one = pc.or_(is_in_one, pc.fill_null(is_in, False))
    return is_in_one
