"""The stored records of an entity table: the columns needed to resolve other records with them, and their places."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import polars as pl
import pyarrow as pa
from pyiceberg.table import Table

from headrace.build.entities.alike import share_block
from headrace.build.entities.read_files import ReadFiles
from headrace.build.entities.resolve import Rules
from headrace.iceberg.deletes.position_deletes import read_positions
from headrace.iceberg.files.live_files import LiveFile
from headrace.iceberg.rows.arrow_files import read_arrow, read_row_groups
from headrace.spec.model.fuzzy import Fuzzy
from headrace.spec.model.matching import CONFIDENCE, ENTITY_ID, PREVIOUS, UNUSED

FILE_NUMBER, ROW_NUMBER = "__file", "__row"
PLACE = (FILE_NUMBER, ROW_NUMBER)


_HASH = "__hash_{}"


class Lookup(Protocol):
    """Lookups of a table's stored records. Each returned row has its place."""

    def having(self, name: str, values: pl.Series, *, most: int | None = None) -> pl.DataFrame:
        """Return the records with one of these values, including null, in a lookup column.

        With `most`, at least that many records of each value are returned, if they exist.
        """

    def with_keys(self, keys: pl.DataFrame) -> pl.DataFrame:
        """Return the records with one of these keys."""

    def sharing_blocks(self, new: pl.DataFrame, fuzzy: Fuzzy) -> pl.DataFrame:
        """Return the records that share a block with one of the new ones."""

    def largest_entity(self, touched: pl.Series) -> int:
        """Return the number of records in the largest entity that is not touched, or 0 without one."""


@dataclass(frozen=True)
class RecordIndex:
    """All records in this process, one frame for each file; records at `deleted` places are not live.

    Lookup columns have an additional column with hashes of their values.
    """

    frames: tuple[pl.DataFrame, ...]
    deleted: pl.DataFrame

    @cached_property
    def rows(self) -> pl.DataFrame:
        return pl.concat(self.frames)

    def where(self, condition: pl.Series) -> pl.DataFrame:
        """Return the live records that meet a condition, with their places.

        The rows are taken from each file's frame: taking them from the concatenated frame would copy its lists.
        """
        parts, first = [], 0
        for number, frame in enumerate(self.frames):
            here = condition.slice(first, frame.height).arg_true()
            first += frame.height
            if len(here) or not number:
                parts.append(_placed(frame[here], number, here))
        live = pl.concat(parts).join(self.deleted, on=PLACE, how="anti")
        return live.drop(name for name in live.columns if name.startswith(_HASH.format("")))

    def having(self, name: str, values: pl.Series, *, most: int | None = None) -> pl.DataFrame:
        """Return all live records with one of these values.

        Scanning the hashes takes a sixth of the time of comparing values; the values of the candidates are compared afterwards.
        """
        wanted = values.cast(self.rows.schema[name])
        candidates = self.where(self.rows[_HASH.format(name)].is_in(wanted.hash().implode()))
        return candidates.filter(pl.col(name).is_in(wanted.implode(), nulls_equal=True))

    def with_keys(self, keys: pl.DataFrame) -> pl.DataFrame:
        """Return the live records with one of these keys."""
        selective = max(keys.columns, key=lambda name: keys[name].n_unique())
        candidates = self.having(selective, keys[selective].unique())
        return candidates.join(keys, on=keys.columns, how="semi", nulls_equal=True)

    def sharing_blocks(self, new: pl.DataFrame, fuzzy: Fuzzy) -> pl.DataFrame:
        """Return the live records that share a block with one of the new ones."""
        return self.where(share_block(self.rows, new, fuzzy))

    def largest_entity(self, touched: pl.Series) -> int:
        """Return the number of records in the largest entity that is not touched, or 0 without one.

        It groups hashes, because numbers are faster to group than text. A hash collision is possible but harmless: the number
        only triggers a warning.
        """
        hashes = []
        for number, frame in enumerate(self.frames):
            gone = self.deleted.filter(pl.col(FILE_NUMBER) == number)[ROW_NUMBER]
            here = frame.select(pl.col(_HASH.format(ENTITY_ID)).alias("hash"))
            hashes.append(
                here.with_row_index(ROW_NUMBER).filter(~pl.col(ROW_NUMBER).is_in(gone.implode())) if len(gone) else here
            )
        counts = pl.concat([frame.select("hash") for frame in hashes]).group_by("hash").len()
        others = counts.filter(~pl.col("hash").is_in(touched.cast(pl.String).hash().implode()))
        return int(others["len"].max() or 0)  # type: ignore[arg-type]


def hashed(records: pl.DataFrame, rules: Rules) -> pl.DataFrame:
    """Return records with hashes of their lookup values."""
    names = dict.fromkeys((*rules.keys, *(match.column for match in rules.matches), ENTITY_ID))
    return records.with_columns(pl.col(name).hash().alias(_HASH.format(name)) for name in names)


def index_columns(rules: Rules) -> list[str]:
    """Return the columns of stored records that are needed to resolve other records with them."""
    return [*rules.keys, *rules.columns, ENTITY_ID, PREVIOUS, UNUSED, CONFIDENCE]


@dataclass(frozen=True)
class Stored:
    """A table's snapshot. A row's place is the index of its file in `files`, and its position in the file."""

    table: Table
    files: tuple[LiveFile, ...]
    read_files: ReadFiles

    def index(self, rules: Rules) -> Lookup:
        """Return an index of all records with keys, values and entities, cached for the next build."""
        names = index_columns(rules)
        self.read_files.keep_only({file.path for file in self.files}, under=f"{self.table.location()}/")
        empty = hashed(self.empty(names), rules)
        cached = {file.path: self.read_files.get(file.path, empty.schema) for file in self.files}
        frames = {path: frame for path, frame in cached.items() if frame is not None}
        unread = [path for path in cached if path not in frames]
        for path, rows in zip(unread, read_arrow(self.table, unread, columns=names), strict=True):
            frames[path] = hashed(pl.DataFrame(rows), rules).rechunk()  # a lookup in a single chunk takes half as long
            self.read_files.put(path, frames[path])
        return RecordIndex(tuple(frames[file.path] for file in self.files) or (empty,), self._deleted_places)

    def ids(self, rules: Rules) -> pl.DataFrame:
        """Return the keys and entity ids of all records, which are kept when the settings change."""
        return self._live(range(len(self.files)), columns=[*rules.keys, ENTITY_ID, PREVIOUS])

    def whole(self, numbers: Sequence[int]) -> pl.DataFrame:
        """Return all columns of some files' live rows, with their places."""
        return self._live(numbers, columns=self.columns)

    def complete(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return rows of the index with all columns of the table, cached for the next build."""
        ordered = rows.sort(PLACE)
        missing = [name for name in self.columns if name not in rows.columns]
        places = ordered.partition_by(FILE_NUMBER, as_dict=True)
        wanted = {self.files[number].path: file_rows[ROW_NUMBER] for (number,), file_rows in sorted(places.items())}
        empty = self.empty(missing)
        parts = {path: self.read_files.parts(path, empty.schema) for path in wanted}
        unread = {path: _not_in(positions, parts[path]).to_arrow() for path, positions in wanted.items()}
        unread = {path: positions for path, positions in unread.items() if len(positions)}
        for path, groups in read_row_groups(self.table, unread, columns=missing).items():
            new = {first: pl.DataFrame(group) for first, group in groups.items()}
            self.read_files.put_parts(path, new)
            parts[path] |= new
        chosen = [part for path, positions in wanted.items() for part in _rows_in(positions, parts[path])]
        others = pl.concat([empty, *chosen])
        return pl.concat([ordered, others], how="horizontal").select(*self.columns, *PLACE)

    @property
    def columns(self) -> list[str]:
        return [field.name for field in self.table.schema().fields]

    @cached_property
    def deleted(self) -> tuple[pl.Series, ...]:
        """The positions of deleted rows for each file."""
        deletes = ([delete.file_path for delete in file.deletes] for file in self.files)
        places = (read_positions(self.table, file.path, paths) for file, paths in zip(self.files, deletes, strict=True))
        return tuple(pl.Series(positions).cast(pl.Int64) for positions in places)

    @property
    def _deleted_places(self) -> pl.DataFrame:
        places = [
            pl.select(pl.lit(number, pl.UInt32).alias(FILE_NUMBER), rows.alias(ROW_NUMBER))
            for number, rows in enumerate(self.deleted)
            if len(rows)
        ]
        return pl.concat([pl.DataFrame(schema={FILE_NUMBER: pl.UInt32, ROW_NUMBER: pl.Int64}), *places])

    def small(self, *, rows: int) -> list[int]:
        """Return the indices of files with fewer live rows than `rows`."""
        return [number for number, file in enumerate(self.files) if file.rows - len(self.deleted[number]) < rows]

    def to_arrow(self, rows: pl.DataFrame) -> pa.Table:
        return rows.select(self.columns).to_arrow(compat_level=pl.CompatLevel.oldest())

    def _live(self, numbers: Sequence[int], *, columns: Sequence[str]) -> pl.DataFrame:
        """Return the live rows of files."""
        rows = self._read(numbers, columns=columns)
        if not any(len(self.deleted[number]) for number in numbers):
            return rows
        return rows.join(self._deleted_places, on=PLACE, how="anti", maintain_order="left")

    def _read(self, numbers: Sequence[int], *, columns: Sequence[str]) -> pl.DataFrame:
        """Return all rows of files with their places, including deleted ones."""
        tables = read_arrow(self.table, [self.files[number].path for number in numbers], columns=columns)
        frames = zip(numbers, map(pl.DataFrame, tables), strict=True)
        placed = [_placed(frame, number, pl.int_range(frame.height, eager=True)) for number, frame in frames]
        return pl.concat([_placed(self.empty(columns), 0, pl.int_range(0, eager=True)), *placed])

    def empty(self, columns: Sequence[str]) -> pl.DataFrame:
        """Return an empty frame with these columns of the table."""
        return pl.DataFrame(self.table.schema().as_arrow().empty_table().select(list(columns)))


def _placed(rows: pl.DataFrame, number: int, places: pl.Series) -> pl.DataFrame:
    file = pl.Series(FILE_NUMBER, [number], dtype=pl.UInt32).new_from_index(0, rows.height)
    return rows.hstack([file, places.cast(pl.Int64).alias(ROW_NUMBER)])


def _not_in(rows: pl.Series, parts: Mapping[int, pl.DataFrame]) -> pl.Series:
    """Return the positions that are in none of these parts of their file."""
    for first, part in parts.items():
        rows = rows.filter((rows < first) | (rows >= first + part.height))
    return rows


def _rows_in(rows: pl.Series, parts: Mapping[int, pl.DataFrame]) -> list[pl.DataFrame]:
    """Return rows by their ascending positions from the parts of their file."""
    chosen = []
    for first, part in sorted(parts.items()):
        here = rows.filter((rows >= first) & (rows < first + part.height)) - first
        if len(here):
            chosen.append(part[here])
    return chosen
