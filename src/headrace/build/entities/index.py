"""The records that a table of entities holds: what is needed to resolve others with them, and the place that each is at."""

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
    """The records that a table holds, and how those are found that a change is about. Each row has its place."""

    def having(self, name: str, values: pl.Series, *, most: int | None = None) -> pl.DataFrame:
        """Return the records that have one of these values, null among them, in a column that is looked up.

        With `most`, it is enough to return so many records of each value.
        """

    def with_keys(self, keys: pl.DataFrame) -> pl.DataFrame:
        """Return the records that have one of these keys."""

    def sharing_blocks(self, new: pl.DataFrame, fuzzy: Fuzzy) -> pl.DataFrame:
        """Return the records that share a block with one of the new ones."""

    def largest_entity(self, touched: pl.Series) -> int:
        """Return how many records the largest entity has that is not among the touched ones; 0 where there is none."""


@dataclass(frozen=True)
class RecordIndex:
    """All records in this process, a frame for each file; those whose place is among the deleted ones are no longer there.

    Beside the columns that are looked up stand hashes of their values.
    """

    frames: tuple[pl.DataFrame, ...]
    deleted: pl.DataFrame

    @cached_property
    def rows(self) -> pl.DataFrame:
        return pl.concat(self.frames)

    def where(self, condition: pl.Series) -> pl.DataFrame:
        """Return the records that are there and meet a condition, with their places.

        Few do: all others are left where they are. To take rows out of a frame of many files would copy its lists.
        """
        found, first = [], 0
        for number, frame in enumerate(self.frames):
            here = condition.slice(first, frame.height).arg_true()
            first += frame.height
            if len(here) or not number:
                found.append(_placed(frame[here], number, here))
        there = pl.concat(found).join(self.deleted, on=PLACE, how="anti")
        return there.drop(each for each in there.columns if each.startswith(_HASH.format("")))

    def having(self, name: str, values: pl.Series, *, most: int | None = None) -> pl.DataFrame:
        """Return the records that are there and have one of these values, all of them.

        Hashes are numbers, and to look through those takes a sixth of the time; what they find is then compared itself.
        """
        wanted = values.cast(self.rows.schema[name])
        near = self.where(self.rows[_HASH.format(name)].is_in(wanted.hash().implode()))
        return near.filter(pl.col(name).is_in(wanted.implode(), nulls_equal=True))

    def with_keys(self, keys: pl.DataFrame) -> pl.DataFrame:
        """Return the records that are there and have one of these keys."""
        telling = max(keys.columns, key=lambda name: keys[name].n_unique())
        near = self.having(telling, keys[telling].unique())
        return near.join(keys, on=keys.columns, how="semi", nulls_equal=True)

    def sharing_blocks(self, new: pl.DataFrame, fuzzy: Fuzzy) -> pl.DataFrame:
        """Return the records that are there and share a block with one of the new ones."""
        return self.where(share_block(self.rows, new, fuzzy))

    def largest_entity(self, touched: pl.Series) -> int:
        """Return how many records the largest entity has that is not among the touched ones; 0 where there is none.

        Hashes are counted, because numbers are faster to group than text. In theory two entities may have one hash; the figure
        only decides about a warning.
        """
        hashes = []
        for number, frame in enumerate(self.frames):
            gone = self.deleted.filter(pl.col(FILE_NUMBER) == number)[ROW_NUMBER]
            here = frame.select(pl.col(_HASH.format(ENTITY_ID)).alias("hash"))
            hashes.append(
                here.with_row_index(ROW_NUMBER).filter(~pl.col(ROW_NUMBER).is_in(gone.implode())) if len(gone) else here
            )
        counts = pl.concat([each.select("hash") for each in hashes]).group_by("hash").len()
        others = counts.filter(~pl.col("hash").is_in(touched.cast(pl.String).hash().implode()))
        return int(others["len"].max() or 0)  # type: ignore[arg-type]


def hashed(records: pl.DataFrame, rules: Rules) -> pl.DataFrame:
    """Return records with hashes of the values by which they are looked up."""
    names = dict.fromkeys((*rules.keys, *(each.column for each in rules.matches), ENTITY_ID))
    return records.with_columns(pl.col(name).hash().alias(_HASH.format(name)) for name in names)


def index_columns(rules: Rules) -> list[str]:
    """Return the columns of records that are needed to resolve others with them."""
    return [*rules.keys, *rules.columns, ENTITY_ID, PREVIOUS, UNUSED, CONFIDENCE]


@dataclass(frozen=True)
class Stored:
    """A table as one snapshot has it. A row's place is the number of its file in `files`, and its own number there."""

    table: Table
    files: tuple[LiveFile, ...]
    read_files: ReadFiles

    def index(self, rules: Rules) -> Lookup:
        """Return all records: keys, values and entities. They are kept for the next build."""
        names = index_columns(rules)
        self.read_files.keep_only({file.path for file in self.files}, under=f"{self.table.location()}/")
        empty = hashed(self.empty(names), rules)
        kept = {file.path: self.read_files.get(file.path, empty.schema) for file in self.files}
        known = {path: frame for path, frame in kept.items() if frame is not None}
        unread = [path for path in kept if path not in known]
        for path, found in zip(unread, read_arrow(self.table, unread, columns=names), strict=True):
            known[path] = hashed(pl.DataFrame(found), rules).rechunk()  # to look up a row in one chunk takes half as long
            self.read_files.put(path, known[path])
        return RecordIndex(tuple(known[file.path] for file in self.files) or (empty,), self._deleted_places)

    def ids(self, rules: Rules) -> pl.DataFrame:
        """Return the keys of all records and the ids of their entities, which is what outlives a change of the settings."""
        return self._live(range(len(self.files)), columns=[*rules.keys, ENTITY_ID, PREVIOUS])

    def whole(self, numbers: Sequence[int]) -> pl.DataFrame:
        """Return all columns of some files, each row with its place."""
        return self._live(numbers, columns=self.columns)

    def complete(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return rows of the index with all columns of the table. What is read for them is kept for the next build."""
        ordered = rows.sort(PLACE)
        missing = [name for name in self.columns if name not in rows.columns]
        places = ordered.partition_by(FILE_NUMBER, as_dict=True)
        wanted = {self.files[number].path: each[ROW_NUMBER] for (number,), each in sorted(places.items())}
        empty = self.empty(missing)
        parts = {path: self.read_files.parts(path, empty.schema) for path in wanted}
        unread = {path: _not_in(each, parts[path]).to_arrow() for path, each in wanted.items()}
        unread = {path: each for path, each in unread.items() if len(each)}
        for path, groups in read_row_groups(self.table, unread, columns=missing).items():
            new = {first: pl.DataFrame(each) for first, each in groups.items()}
            self.read_files.put_parts(path, new)
            parts[path] |= new
        found = [part for path, each in wanted.items() for part in _rows_in(each, parts[path])]
        others = pl.concat([empty, *found])
        return pl.concat([ordered, others], how="horizontal").select(*self.columns, *PLACE)

    @property
    def columns(self) -> list[str]:
        return [field.name for field in self.table.schema().fields]

    @cached_property
    def deleted(self) -> tuple[pl.Series, ...]:
        """For each file the numbers of its rows that were deleted."""
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
        """Return the files with fewer rows."""
        return [number for number, file in enumerate(self.files) if file.rows - len(self.deleted[number]) < rows]

    def to_arrow(self, rows: pl.DataFrame) -> pa.Table:
        return rows.select(self.columns).to_arrow(compat_level=pl.CompatLevel.oldest())

    def _live(self, numbers: Sequence[int], *, columns: Sequence[str]) -> pl.DataFrame:
        """Return the rows of files that are still there."""
        rows = self._read(numbers, columns=columns)
        if not any(len(self.deleted[number]) for number in numbers):
            return rows
        return rows.join(self._deleted_places, on=PLACE, how="anti", maintain_order="left")

    def _read(self, numbers: Sequence[int], *, columns: Sequence[str]) -> pl.DataFrame:
        """Return the rows of files, also those that were deleted, each with its place."""
        found = read_arrow(self.table, [self.files[number].path for number in numbers], columns=columns)
        frames = zip(numbers, map(pl.DataFrame, found), strict=True)
        placed = [_placed(each, number, pl.int_range(each.height, eager=True)) for number, each in frames]
        return pl.concat([_placed(self.empty(columns), 0, pl.int_range(0, eager=True)), *placed])

    def empty(self, columns: Sequence[str]) -> pl.DataFrame:
        """Return these columns of the table, without rows."""
        return pl.DataFrame(self.table.schema().as_arrow().empty_table().select(list(columns)))


def _placed(rows: pl.DataFrame, number: int, places: pl.Series) -> pl.DataFrame:
    file = pl.Series(FILE_NUMBER, [number], dtype=pl.UInt32).new_from_index(0, rows.height)
    return rows.hstack([file, places.cast(pl.Int64).alias(ROW_NUMBER)])


def _not_in(rows: pl.Series, parts: Mapping[int, pl.DataFrame]) -> pl.Series:
    """Return the numbers of rows that are in none of these parts of their file."""
    for first, part in parts.items():
        rows = rows.filter((rows < first) | (rows >= first + part.height))
    return rows


def _rows_in(rows: pl.Series, parts: Mapping[int, pl.DataFrame]) -> list[pl.DataFrame]:
    """Return rows by their numbers, which are in order, from the parts of their file."""
    found = []
    for first, part in sorted(parts.items()):
        here = rows.filter((rows >= first) & (rows < first + part.height)) - first
        if len(here):
            found.append(part[here])
    return found
