"""A cache of data files' rows on the local disk, with lookups by column values in milliseconds and without Spark.

Data files are immutable, so cached rows and indexes are never stale. They are built on first use, or stored by the writer of
the data file, and evicted when the cache is full.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from itertools import accumulate
from pathlib import Path

import polars as pl
import pyarrow as pa
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

from headrace.bounded_cache import BoundedCache
from headrace.iceberg.commits.build_phases import phase
from headrace.iceberg.deletes.position_deletes import read_positions
from headrace.iceberg.files.live_files import LiveFile
from headrace.iceberg.rows.arrow_cache import ArrowCache
from headrace.iceberg.rows.row_files import RowFormat, as_rows, batches_of, read_rows
from headrace.iceberg.rows.row_index import HASH_VERSION, INDEX_SCHEMA, Match, build_index, hash_rows
from headrace.iceberg.rows.row_ranges import Ranges, Within
from headrace.iceberg.rows.row_sizes import MEMORY_ROWS, TooLargeError, WorkingSet

__all__ = ["FILE", "POSITION", "Ranges", "RowStore", "TooLargeError", "WorkingSet"]

FILE, POSITION = "_file", "_pos"
_PLACES = (pa.field(FILE, pa.string()), pa.field(POSITION, pa.int64()))

SMALL_ROWS = 1_024
"""Files with at most this many rows have no index: their hashes stay in memory and are scanned together, and their rows are
taken from all of them in one call. For larger files, a call for each file is cheaper than copying its columns."""

_FILE_IN_MEMORY_ROWS = MEMORY_ROWS
_IN_MEMORY_BYTES = 32 * 1024 * 1024
"""How many bytes of small files' rows stay in memory."""

_ROOM_BYTES = 4 * 1024 * 1024
"""With less free memory than this, small files that are read go to the cache folder. Otherwise a table of many small files
would be read from Parquet again in each build: each new file would evict another one that the build needs."""

_FEW_WITHIN = 8
"""Ranges that leave at most an eighth of a file's rows are applied before the file's index."""

_HASHES = 8_000_000
_POSITIONS = 8_000_000
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")

_Batches = tuple[pa.RecordBatch, ...]
_NamedFile = tuple[LiveFile, str]
"""A file and the name that its rows have in the cache."""


class RowStore:
    """The rows of data files in `folder`, at most `most_bytes`. Safe between threads and processes.

    Every method that reads a file may raise a TooLargeError if the file's rows alone exceed the bound. `fetch` raises it before
    reading if all files that it would read exceed the bound together.
    """

    def __init__(self, folder: Path, *, most_bytes: int) -> None:
        self._files = ArrowCache(folder, folder / f"{HASH_VERSION}-{_boot()}", most_bytes=most_bytes)
        self._most_bytes = most_bytes
        self._formats: BoundedCache[tuple[str, int], RowFormat] = BoundedCache(1_024)
        self._in_memory: BoundedCache[str, _Batches] = BoundedCache(_IN_MEMORY_BYTES)
        self._hashes: BoundedCache[str, pa.Array] = BoundedCache(_HASHES)
        self._deleted: BoundedCache[tuple[str, str], pa.Array] = BoundedCache(_POSITIONS)
        self._refused: BoundedCache[str, bool] = BoundedCache(1_024)

    def working_set(self) -> WorkingSet:
        """Return an empty working set, to be shared by fetches that need their rows at the same time."""
        return WorkingSet(self._most_bytes)

    def put(self, table: Table, file: DataFile, rows: pa.Table) -> None:
        """Store all rows of a data file that was just written, in file order. Idempotent by the file's path.

        Nothing is stored if the rows exceed the bound. Raise a ValueError if the row count differs from the file's.
        """
        if rows.num_rows != file.record_count:
            raise ValueError(f"{file.file_path} has {file.record_count} rows, not {rows.num_rows}")
        name, schema = _name(table, file), self._schema(table)
        batches = batches_of(as_rows(rows, schema))
        if _stays_in_memory(file):
            self._keep_in_memory(name, tuple(batches))
            return
        try:
            self._files.get(name, schema=schema, rows=file.record_count, build=lambda: batches)
        except TooLargeError:
            return

    def clear(self) -> None:
        """Delete all rows and indexes, so that no erased rows are left. Idempotent."""
        self._hashes.clear()
        self._in_memory.clear()
        self._files.clear()

    def rows(self, table: Table, file: LiveFile) -> pa.Table:
        """Return all rows of the file in file order, including deleted ones."""
        return pa.Table.from_batches(self._batches(table, _named(table, file)), schema=self._schema(table))

    def deleted(self, table: Table, file: LiveFile) -> pa.Array:
        """Return the positions of a file's deleted rows, in ascending order (int64)."""
        parts = [self._positions(table, file, delete.file_path) for delete in file.deletes]
        if len(parts) == 1:
            return parts[0]
        together = pl.concat([pl.Series(part, dtype=pl.Int64) for part in parts] or [pl.Series([], dtype=pl.Int64)])
        return together.unique().sort().to_arrow()

    def find(self, table: Table, file: LiveFile, *, columns: Sequence[str], values: pa.Table) -> pa.Array:
        """Return the positions of the live rows whose columns equal any row of `values`, in ascending order (int64).

        Null equals null. Raise a ValueError if a column does not exist or is nested.
        """
        places = self.fetch(table, [file], columns=[], match=values.select(list(columns)), places=True)
        return pl.Series(places[POSITION], dtype=pl.Int64).sort().to_arrow()

    @phase("fetch")
    def fetch(
        self,
        table: Table,
        files: Sequence[LiveFile],
        *,
        columns: Sequence[str] | None = None,
        match: pa.Table | None = None,
        between: Ranges | None = None,
        places: bool = False,
        working_set: WorkingSet | None = None,
    ) -> pa.Table:
        """Return the live rows of files, in no particular order.

        With `match`, only rows whose columns of the same names equal any of its rows; null equals null. With `between`, only
        rows within the ranges. `columns` are the columns to return. `places` adds the columns `_file` and `_pos`. The files
        that are read are added to `working_set`.

        Raise a ValueError if a column does not exist, or is nested and in `match`.
        """
        schema = self._schema(table)
        names = schema.names if columns is None else list(columns)
        if unknown := sorted({*names} - {*schema.names}):
            raise ValueError(f"column {unknown[0]} does not exist")
        wanted = pa.schema([schema.field(name) for name in names])
        lookup = None if match is None else Match.of(match, schema)
        read = self.working_set() if working_set is None else working_set
        if between is not None:
            within = Within.of(between, schema)
            files = within.files_with(files, table.schema())
            read.add(_files_to_read(table, files, within, lookup), table.schema())
            parts = self._between(table, files, within, lookup, names)
        elif lookup is not None:
            files = lookup.files_with(files, table.schema())
            read.add(files, table.schema())
            parts = self._matching(table, files, lookup, names)
        else:
            read.add(files, table.schema())
            parts = [self._live(table, _named(table, file), names) for file in files]
        shown = [*names, *(field.name for field in _PLACES)] if places else names
        empty = pa.schema([*wanted, *_PLACES]).empty_table()
        return pa.concat_tables([empty, *parts]).select(shown)

    def _live(self, table: Table, named: _NamedFile, names: Sequence[str]) -> pa.Table:
        file, _ = named
        rows = pa.Table.from_batches(self._batches(table, named), schema=self._schema(table)).select(list(names))
        numbers = pl.int_range(file.rows, dtype=pl.Int64, eager=True)
        if file.deletes:
            numbers = _without(numbers, self.deleted(table, file))
            rows = rows.take(numbers.to_arrow())
        return _placed(rows, pa.repeat(file.path, len(numbers)), numbers)

    def _between(
        self, table: Table, files: Sequence[LiveFile], within: Within, match: Match | None, names: Sequence[str]
    ) -> list[pa.Table]:
        """Return the live rows within the ranges that match, with their places.

        The ranges are applied first if they leave few rows of a file; otherwise the file's index is used first.
        """
        needed = list(dict.fromkeys([*names, *within.ranges, *(match.columns if match else ())]))
        parts, by_match = [], []
        for file in files:
            if match is not None and within.covers(file, table.schema()):
                by_match.append(file)
                continue
            batches = self._batches(table, _named(table, file))
            numbers = within.rows(batches)
            if match is not None and len(numbers) * _FEW_WITHIN > file.rows:
                by_match.append(file)
                continue
            numbers = _without(numbers, self.deleted(table, file)) if file.deletes else numbers
            if len(numbers):
                parts.append(_placed(_take(batches, numbers, needed), pa.repeat(file.path, len(numbers)), numbers))
        if match is not None:
            parts = [part.take(equal.to_arrow()) if (equal := match.equal(part)) is not None else part for part in parts]
            matching = self._matching(table, by_match, match, needed)
            parts += [part.take(within.rows([part]).to_arrow()) for part in matching]
        return [part.select([*names, FILE, POSITION]) for part in parts]

    def _matching(self, table: Table, files: Sequence[LiveFile], match: Match, names: Sequence[str]) -> list[pa.Table]:
        """Return the live rows of files that match, with their places."""
        if not match.rows.num_rows:
            return []
        named = [_named(table, file) for file in match.files_with(files, table.schema())]
        needed = list(dict.fromkeys([*names, *match.columns]))
        large = [self._in_large(table, file, match, needed) for file in named if file[0].rows > SMALL_ROWS]
        parts = [*large, self._in_small(table, [file for file in named if file[0].rows <= SMALL_ROWS], match, needed)]
        candidates = [part for part in parts if part is not None]
        if not candidates:
            return []
        rows = pa.concat_tables(candidates)
        equal = match.equal(rows)
        shown = [*names, FILE, POSITION]
        return [rows.select(shown) if equal is None else rows.select(shown).take(equal.to_arrow())]

    def _in_large(self, table: Table, named: _NamedFile, match: Match, names: Sequence[str]) -> pa.Table | None:
        """Return the live candidates of a large file through its index."""
        file, name = named
        batches = self._batches(table, named)
        (index,) = self._files.get(
            f"{name}-{match.index}",
            schema=INDEX_SCHEMA,
            rows=file.rows,
            build=lambda: [build_index(batches, match.columns)],
        )
        numbers = match.find(index["hash"], index["row"])
        if file.deletes and len(numbers):
            numbers = _without(numbers, self.deleted(table, file))
        if not len(numbers):
            return None
        return _placed(_take(batches, numbers, names), pa.repeat(file.path, len(numbers)), numbers)

    def _in_small(self, table: Table, named: Sequence[_NamedFile], match: Match, names: Sequence[str]) -> pa.Table | None:
        """Return the live candidates of small files by scanning the hashes of all their rows."""
        if not named:
            return None
        hashes = [self._small_hashes(table, file, match) for file in named]
        starts = pl.Series([0, *accumulate(map(len, hashes))][:-1], dtype=pl.Int64)
        candidates = match.scan(pa.concat_arrays(hashes))
        if not len(candidates):
            return None
        places = pl.DataFrame({"file": starts.search_sorted(candidates, side="right").cast(pl.Int64) - 1, "place": candidates})
        places = places.with_columns((pl.col("place") - starts.gather(places["file"])).alias("row"))
        deleted = self._deleted_places(table, named, places["file"])
        if deleted is not None:
            places = places.join(deleted, on=["file", "row"], how="anti")
        return self._take_small(table, named, places, names)

    def _deleted_places(self, table: Table, named: Sequence[_NamedFile], numbers: pl.Series) -> pl.DataFrame | None:
        """Return the deleted rows of some files by file number and position, or None if no rows are deleted."""
        parts = []
        for number in numbers.unique():
            file = named[number][0]
            if file.deletes:
                rows = pl.Series("row", self.deleted(table, file), dtype=pl.Int64)
                parts.append(rows.to_frame().with_columns(pl.lit(number, pl.Int64).alias("file")))
        return pl.concat(parts) if parts else None

    def _take_small(self, table: Table, named: Sequence[_NamedFile], places: pl.DataFrame, names: Sequence[str]) -> pa.Table:
        """Return rows by file number and position: concatenate the files' rows, then take once."""
        numbers = places["file"].unique().sort()
        files = [named[number] for number in numbers]
        batches = [batch for file in files for batch in self._batches(table, file)]
        together = pa.Table.from_batches(batches, schema=self._schema(table)).select(list(names))
        starts = pl.Series([0, *accumulate(file.rows for file, _ in files)][:-1], dtype=pl.Int64)
        order = numbers.search_sorted(places["file"])
        rows = together.take((starts.gather(order) + places["row"]).to_arrow())
        paths = pa.array([file.path for file, _ in files], pa.string()).take(order.to_arrow())
        return _placed(rows, paths, places["row"])

    def _small_hashes(self, table: Table, named: _NamedFile, match: Match) -> pa.Array:
        def read() -> pa.Array:
            return hash_rows(self._batches(table, named), match.columns).to_arrow()

        return self._hashes.get_or_build(f"{named[1]}-{match.index}", read, weigh=len)

    def _batches(self, table: Table, named: _NamedFile) -> _Batches:
        file, name = named
        if _stays_in_memory(file.file):
            batches = self._in_memory.get(name)
            if batches is not None:
                return batches
            if self._in_memory.has_room(_ROOM_BYTES):
                return self._keep_in_memory(name, tuple(self._read(table, file)))
        if file.size > self._most_bytes or self._refused.get(name):
            raise TooLargeError(f"the rows of {file.path} take more than {self._most_bytes} bytes")
        try:
            schema = self._schema(table)
            return self._files.get(name, schema=schema, rows=file.rows, build=lambda: self._read(table, file))
        except TooLargeError as error:
            self._refused.put(name, True)
            raise TooLargeError(f"the rows of {file.path} take more than {self._most_bytes} bytes") from error

    def _read(self, table: Table, file: LiveFile) -> Iterator[pa.RecordBatch]:
        return batches_of(read_rows(table.io, file.file, self._format(table)))

    def _keep_in_memory(self, name: str, batches: _Batches) -> _Batches:
        self._in_memory.put(name, batches, weight=sum(batch.nbytes for batch in batches))
        return batches

    def _positions(self, table: Table, file: LiveFile, delete: str) -> pa.Array:
        key = (delete, file.path)
        return self._deleted.get_or_build(key, lambda: read_positions(table, file.path, [delete]), weigh=len)

    def _schema(self, table: Table) -> pa.Schema:
        return self._format(table).schema

    def _format(self, table: Table) -> RowFormat:
        key = (table.metadata.table_uuid.hex, table.metadata.current_schema_id)
        return self._formats.get_or_build(key, lambda: RowFormat.of(table.schema()))


def _files_to_read(table: Table, files: Sequence[LiveFile], within: Within, match: Match | None) -> list[LiveFile]:
    """Return the files within ranges that have to be read. Files covered by the ranges are included only if they may match."""
    if match is None:
        return list(files)
    covered = {file.path: within.covers(file, table.schema()) for file in files}
    matching = match.files_with([file for file in files if covered[file.path]], table.schema())
    return [*matching, *(file for file in files if not covered[file.path])]


def _stays_in_memory(file: DataFile) -> bool:
    return file.record_count <= _FILE_IN_MEMORY_ROWS


def _named(table: Table, file: LiveFile) -> _NamedFile:
    return file, _name(table, file.file)


def _name(table: Table, file: DataFile) -> str:
    """Return a name that is unique to the file's content: a dropped table may have had a file of the same path.

    It begins with the table's id, by which row_store_size.py sums the sizes.
    """
    version = f"{table.metadata.table_uuid.hex} {table.metadata.current_schema_id}"
    key = f"{version} {file.file_size_in_bytes} {file.record_count} {file.file_path}"
    return f"{table.metadata.table_uuid.hex}-{hashlib.sha256(key.encode()).hexdigest()[:32]}"


def _take(batches: Sequence[pa.RecordBatch], numbers: pl.Series, names: Sequence[str]) -> pa.Table:
    """Return rows by their ascending positions, batch by batch: only their pages are read."""
    if len(batches) == 1:
        return pa.Table.from_batches([batches[0].select(list(names)).take(numbers.to_arrow())])
    taken, first = [], 0
    for batch in batches:
        here = numbers.filter((numbers >= first) & (numbers < first + len(batch))) - first
        if len(here):
            taken.append(batch.select(list(names)).take(here.to_arrow()))
        first += len(batch)
    return pa.Table.from_batches(taken)


def _placed(rows: pa.Table, paths: pa.Array, numbers: pl.Series) -> pa.Table:
    """Return rows with the columns `_file` and `_pos`."""
    return pa.Table.from_arrays([*rows.columns, paths, numbers.to_arrow()], schema=pa.schema([*rows.schema, *_PLACES]))


def _without(numbers: pl.Series, deleted: pa.Array) -> pl.Series:
    return numbers.filter(~numbers.is_in(pl.Series(deleted, dtype=pl.Int64).implode()))


def _boot() -> str:
    """Return the boot id of the machine: cache files are not synced, and a crash may leave holes in them."""
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return "unknown"
