"""Rows of data files on the local disk, found by the values of some columns in milliseconds and without Spark.

A data file never changes, so neither do its rows and indexes here: they can't be stale. They are built when they are first
needed, or stored by whoever writes the data file, and evicted when the cache is full.
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
"""Files of at most so many rows have no index: their hashes are kept in memory and looked through all at once, and their rows
are taken out of all of them at once. From here on a call for each file is cheaper than copying its columns."""

_FILE_IN_MEMORY_ROWS = MEMORY_ROWS
_IN_MEMORY_BYTES = 32 * 1024 * 1024
"""How many bytes of the rows of small files stay in memory."""

_ROOM_BYTES = 4 * 1024 * 1024
"""Without so much room in memory, small files that are read go to the cache's folder. Else a table of many small files would be
read from Parquet again in each build: each file that comes pushes out another one that the build needs."""

_FEW_WITHIN = 8
"""Ranges that leave at most an eighth of a file's rows are looked through before the file's index is asked."""

_HASHES = 8_000_000
_POSITIONS = 8_000_000
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")

_Batches = tuple[pa.RecordBatch, ...]
_NamedFile = tuple[LiveFile, str]
"""A file and the name that its rows have in the cache."""


class RowStore:
    """The rows of data files in `folder`, at most `most_bytes` of them. Safe between threads and processes.

    Every method that reads a file may raise a TooLargeError: its rows alone exceed the bound. `fetch` raises it before it reads
    any, if those that it would have to read exceed the bound in all.
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
        """Return an empty set of files, for fetches that need their rows at the same time."""
        return WorkingSet(self._most_bytes)

    def put(self, table: Table, file: DataFile, rows: pa.Table) -> None:
        """Store the rows of a data file that was just written, all of them in its order. Idempotent by the file's path.

        Nothing is stored if they exceed the bound. Raise a ValueError if their number is not the file's.
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
        """Delete all rows and indexes, so that nothing is left of rows that were erased from their tables. Idempotent."""
        self._hashes.clear()
        self._in_memory.clear()
        self._files.clear()

    def rows(self, table: Table, file: LiveFile) -> pa.Table:
        """Return all rows that are written in the file, in order, deleted ones too."""
        return pa.Table.from_batches(self._batches(table, _named(table, file)), schema=self._schema(table))

    def deleted(self, table: Table, file: LiveFile) -> pa.Array:
        """Return the numbers of the rows of a file that are deleted, in ascending order (int64)."""
        parts = [self._positions(table, file, delete.file_path) for delete in file.deletes]
        if len(parts) == 1:
            return parts[0]
        together = pl.concat([pl.Series(part, dtype=pl.Int64) for part in parts] or [pl.Series([], dtype=pl.Int64)])
        return together.unique().sort().to_arrow()

    def find(self, table: Table, file: LiveFile, *, columns: Sequence[str], values: pa.Table) -> pa.Array:
        """Return the numbers of the live rows whose columns equal any row of `values` in ascending order (int64).

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

        With `match` only rows whose columns, named as in `match`, equal any of its rows; null equals null. With `between` only
        rows within the ranges. `columns` are those to return. With `places` the columns `_file` and `_pos` say where a row is.
        The files that are read are added to `working_set`.

        Raise a ValueError if a column does not exist, or is nested and in `match`.
        """
        schema = self._schema(table)
        names = schema.names if columns is None else list(columns)
        if unknown := sorted({*names} - {*schema.names}):
            raise ValueError(f"column {unknown[0]} does not exist")
        wanted = pa.schema([schema.field(name) for name in names])
        wants = None if match is None else Match.of(match, schema)
        read = self.working_set() if working_set is None else working_set
        if between is not None:
            within = Within.of(between, schema)
            files = within.files_with(files, table.schema())
            read.add(_files_to_read(table, files, within, wants), table.schema())
            parts = self._between(table, files, within, wants, names)
        elif wants is not None:
            files = wants.files_with(files, table.schema())
            read.add(files, table.schema())
            parts = self._matching(table, files, wants, names)
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
        """Return the live rows within ranges that equal one of the match's, with their places, of files that may hold some.

        The ranges are looked through first where they leave few rows of a file, else its index is asked first.
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
            found = self._matching(table, by_match, match, needed)
            parts += [part.take(within.rows([part]).to_arrow()) for part in found]
        return [part.select([*names, FILE, POSITION]) for part in parts]

    def _matching(self, table: Table, files: Sequence[LiveFile], match: Match, names: Sequence[str]) -> list[pa.Table]:
        """Return the live rows of files that equal one of the match's, with their places."""
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
        """Return the live candidates of a file, found through its index."""
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
        """Return the live candidates of many small files, found by looking through the hashes of all their rows."""
        if not named:
            return None
        hashes = [self._small_hashes(table, file, match) for file in named]
        starts = pl.Series([0, *accumulate(map(len, hashes))][:-1], dtype=pl.Int64)
        found = match.scan(pa.concat_arrays(hashes))
        if not len(found):
            return None
        places = pl.DataFrame({"file": starts.search_sorted(found, side="right").cast(pl.Int64) - 1, "found": found})
        places = places.with_columns((pl.col("found") - starts.gather(places["file"])).alias("row"))
        gone = self._gone(table, named, places["file"])
        if gone is not None:
            places = places.join(gone, on=["file", "row"], how="anti")
        return self._take_small(table, named, places, names)

    def _gone(self, table: Table, named: Sequence[_NamedFile], numbers: pl.Series) -> pl.DataFrame | None:
        """Return the deleted rows of some files by the number of the file and their own, or None where there are none."""
        parts = []
        for number in numbers.unique():
            file = named[number][0]
            if file.deletes:
                rows = pl.Series("row", self.deleted(table, file), dtype=pl.Int64)
                parts.append(rows.to_frame().with_columns(pl.lit(number, pl.Int64).alias("file")))
        return pl.concat(parts) if parts else None

    def _take_small(self, table: Table, named: Sequence[_NamedFile], places: pl.DataFrame, names: Sequence[str]) -> pa.Table:
        """Return rows by the number of their file and their own: the files' rows side by side, then one take."""
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
    """Return those of the files within ranges that have to be read: whole ones are left out where no row can match."""
    if match is None:
        return list(files)
    covered = {file.path: within.covers(file, table.schema()) for file in files}
    whole = match.files_with([file for file in files if covered[file.path]], table.schema())
    return [*whole, *(file for file in files if not covered[file.path])]


def _stays_in_memory(file: DataFile) -> bool:
    return file.record_count <= _FILE_IN_MEMORY_ROWS


def _named(table: Table, file: LiveFile) -> _NamedFile:
    return file, _name(table, file.file)


def _name(table: Table, file: DataFile) -> str:
    """Return a name that no other content has: a table that was dropped may have had a file of the same path.

    It begins with the table's id, by which row_store_size.py adds up what is stored of a table.
    """
    version = f"{table.metadata.table_uuid.hex} {table.metadata.current_schema_id}"
    key = f"{version} {file.file_size_in_bytes} {file.record_count} {file.file_path}"
    return f"{table.metadata.table_uuid.hex}-{hashlib.sha256(key.encode()).hexdigest()[:32]}"


def _take(batches: Sequence[pa.RecordBatch], numbers: pl.Series, names: Sequence[str]) -> pa.Table:
    """Return rows by their numbers, which are in ascending order, batch by batch: only their pages are read."""
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
    """Return what tells this start of the machine from others: cache files are not synced, and a crash leaves holes in them."""
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return "unknown"
