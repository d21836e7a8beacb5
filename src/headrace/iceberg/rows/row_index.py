"""Find rows by the values of some columns: 64-bit hashes yield candidates, whose values are then compared.

Null is a value, NaN equals NaN, and 0.0 equals -0.0, as in Spark's joins. The hashes come from polars and may change with its
version, so `HASH_VERSION` must be part of the name of every stored index.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema

from headrace.iceberg.files.live_files import LiveFile, bounds_field, may_hold
from headrace.iceberg.rows.arrow_equality import all_true, equal_values

_PROBE = pl.DataFrame({"text": ["headrace", None], "number": [1, 2]}).hash_rows()
HASH_VERSION = f"polars-{pl.__version__}-{_PROBE[0]:016x}{_PROBE[1]:016x}"
"""Identifies the hash function of a version and build of polars, by its hashes of the same rows."""

_FEW_VALUES = 1_000
"""Up to this many values are looked up one by one. One lookup takes 1.5 µs in the index of a large file. Polars looks up all
values in 0.5 ms, or several on busy cores, and a table has hundreds of files."""

INDEX_SCHEMA = pa.schema([pa.field("hash", pa.uint64()), pa.field("row", pa.uint32())])
"""The index of a file: hashes in ascending order, and the position of the row with the hash."""


@dataclass(frozen=True)
class Match:
    """The values to look up: rows of some columns, in the columns' types. Duplicates are allowed.

    Few values are compared with Arrow in the calling thread. Polars runs every operation in its thread pool, which takes a
    millisecond on busy cores, and a build needs hundreds.
    """

    rows: pa.Table

    @classmethod
    def of(cls, rows: pa.Table, schema: pa.Schema) -> Match:
        """Return the match of `rows` in a table of this Arrow schema.

        Raise a ValueError if it has no columns, a column that the table lacks or that is nested, or a value that does not fit
        the column's type.
        """
        names = sorted(rows.column_names)
        check_columns(names, schema)
        wanted = pa.schema([schema.field(name) for name in names])
        return cls(rows.select(names).cast(wanted).combine_chunks())

    @cached_property
    def values(self) -> pl.DataFrame:
        return pl.DataFrame(self.rows)

    @property
    def columns(self) -> list[str]:
        return list(self.rows.column_names)

    @cached_property
    def index(self) -> str:
        """A digest of the columns, which identifies the index among the indexes of a file."""
        return hashlib.sha256(repr(self.columns).encode()).hexdigest()[:16]

    @cached_property
    def hashes(self) -> pa.Array:
        """The distinct hashes of the values."""
        return pc.unique(self._hash_of_rows)

    @cached_property
    def _hash_of_rows(self) -> pa.Array:
        return self.values.hash_rows().to_arrow()

    def files_with(self, files: Iterable[LiveFile], schema: Schema) -> list[LiveFile]:
        """Return the files whose bounds may contain one of the values."""
        columns = [(bounds_field(schema, name), low, high) for name, (low, high) in self._ranges.items()]
        return [file for file in files if file.rows and all(may_hold(file.file, *bounds) for bounds in columns)]

    def find(self, hashes: pa.Array, rows: pa.Array) -> pl.Series:
        """Return the candidates of an index in ascending order: the positions of the rows with one of the hashes."""
        if len(self.hashes) <= _FEW_VALUES:
            return pl.Series(rows.take(pa.array(self._bisect(hashes), pa.int64())), dtype=pl.Int64).sort()
        index = pl.DataFrame({"hash": pl.Series(hashes), "row": pl.Series(rows)})
        # One expression: in polars every operation on a Series is a separate query, which costs more than the search.
        first, end = (pl.col("hash").search_sorted(pl.lit(pl.Series(self.hashes)), side=side) for side in ("left", "right"))
        ranges = index.select(first=first, end=end).filter(pl.col("first") < pl.col("end"))
        if ranges.is_empty():
            return pl.Series([], dtype=pl.Int64)
        places = pl.int_ranges("first", "end").explode()
        return index["row"].gather(ranges.select(places).to_series()).cast(pl.Int64).sort()

    def _bisect(self, hashes: pa.Array) -> list[int]:
        """Return the places of the wanted hashes in the ascending `hashes`, without copying these."""
        first, end = hashes.offset, hashes.offset + len(hashes)
        ordered = memoryview(hashes.buffers()[1]).cast("B").cast("Q")
        places, place = [], first
        for value in self._wanted:
            place = bisect_left(ordered, value, place, end)
            while place < end and ordered[place] == value:
                places.append(place - first)
                place += 1
        return places

    @cached_property
    def _wanted(self) -> list[int]:
        """The hashes in ascending order."""
        return sorted(self.hashes.to_pylist())

    def scan(self, hashes: pa.Array) -> pl.Series:
        """Return the positions of the candidates among hashes in row order."""
        return pl.Series(pc.indices_nonzero(pc.is_in(hashes, value_set=self.hashes)), dtype=pl.Int64)

    def equal(self, rows: pa.Table) -> pl.Series | None:
        """Return the positions of the rows that equal one of the values, in ascending order, or None if all do."""
        if not rows.num_rows:
            return None
        candidates = rows.select(self.columns)
        if self._representatives is None:
            numbered = pl.DataFrame(candidates).with_row_index("__row")
            same = numbered.join(self.values, on=self.columns, how="semi", nulls_equal=True)["__row"].cast(pl.Int64).sort()
        else:
            places = pc.index_in(pl.DataFrame(candidates).hash_rows().to_arrow(), value_set=self.hashes)
            is_same = pc.and_(pc.is_valid(places), _equal_rows(candidates, self._representatives.take(places)))
            same = pl.Series(pc.indices_nonzero(is_same), dtype=pl.Int64)
        return None if len(same) == rows.num_rows else same

    @cached_property
    def _representatives(self) -> pa.Table | None:
        """The value of each hash, or None if hashes collide or a type must be compared with polars to match Spark."""
        if any(pa.types.is_floating(field.type) for field in self.rows.schema):
            return None
        values = self.rows.take(pc.index_in(self.hashes, value_set=self._hash_of_rows))
        places = pc.index_in(self._hash_of_rows, value_set=self.hashes)
        return values if pc.all(_equal_rows(self.rows, values.take(places)), min_count=0).as_py() else None

    @cached_property
    def _ranges(self) -> dict[str, tuple[int, int]]:
        """The smallest and the largest value of the columns that have integer bounds and no null among the values."""
        ranges = {}
        for column in self.values:
            whole = column.dtype.is_integer() or column.dtype == pl.Date or column.dtype == pl.Datetime("us")
            if (whole or isinstance(column.dtype, pl.Datetime)) and not column.is_empty() and not column.null_count():
                numbers = column.to_physical()
                ranges[column.name] = (int(numbers.min()), int(numbers.max()))  # type: ignore[arg-type]
        return ranges


def _equal_rows(left: pa.Table, right: pa.Table) -> pa.Array:
    """Return for each pair of rows whether all columns are equal or both null."""
    return all_true([equal_values(*pair) for pair in zip(left.columns, right.columns, strict=True)], rows=left.num_rows)


def check_columns(names: Sequence[str], schema: pa.Schema) -> None:
    """Raise a ValueError if rows can't be looked up by these columns."""
    if not names:
        raise ValueError("a lookup needs at least one column")
    if len(set(names)) != len(names):
        raise ValueError(f"duplicate column in a lookup: {', '.join(names)}")
    for name in names:
        if name not in schema.names:
            raise ValueError(f"column {name} does not exist")
        if pa.types.is_nested(schema.field(name).type):
            raise ValueError(f"column {name} is nested: lookups need columns of plain types")


def hash_rows(batches: Sequence[pa.RecordBatch], columns: Sequence[str]) -> pl.Series:
    """Return the hash of these columns of every row."""
    parts = [pl.DataFrame(batch.select(list(columns))).hash_rows() for batch in batches]
    return pl.concat(parts) if parts else pl.Series([], dtype=pl.UInt64)


def build_index(batches: Sequence[pa.RecordBatch], columns: Sequence[str]) -> pa.RecordBatch:
    """Return the index of rows on some columns."""
    hashes = hash_rows(batches, columns)
    order = hashes.arg_sort()
    arrays = [hashes.gather(order).to_arrow(), order.cast(pl.UInt32).to_arrow()]
    return pa.RecordBatch.from_arrays(arrays, schema=INDEX_SCHEMA)
