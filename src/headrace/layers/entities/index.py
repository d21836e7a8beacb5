"""The records that a table of entities holds: what is needed to resolve others with them, and the place that each is at."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import polars as pl
import pyarrow as pa
from pyiceberg.table import Table

from headrace.layers.entities.read_files import ReadFiles
from headrace.layers.entities.resolve import Rules
from headrace.spec.matching import CONFIDENCE, ENTITY_ID, PREVIOUS, UNUSED
from headrace.tables.arrow_files import ArrowFile, read_arrow, read_rows
from headrace.tables.deleted_rows import read_positions

FILE_NUMBER, ROW_NUMBER = "__file", "__row"
PLACE = (FILE_NUMBER, ROW_NUMBER)


@dataclass(frozen=True)
class RecordIndex:
    """Records with their places; those whose place is among the deleted ones are no longer there."""

    rows: pl.DataFrame
    deleted: pl.DataFrame

    def where(self, condition: pl.Expr | pl.Series) -> pl.DataFrame:
        """Gives back the records that are there and meet a condition, which few do: all others are left where they are."""
        return self.rows.filter(condition).join(self.deleted, on=PLACE, how="anti")


@dataclass(frozen=True)
class Stored:
    """A table as one snapshot has it. A row's place is the number of its file in `files`, and its own number there."""

    table: Table
    files: tuple[ArrowFile, ...]
    read_files: ReadFiles

    def index(self, rules: Rules) -> RecordIndex:
        """Gives back all records: keys, values and entities. They are kept for the next build."""
        names = [*rules.keys, *rules.columns, ENTITY_ID, PREVIOUS, UNUSED, CONFIDENCE]
        self.read_files.keep_only({file.path for file in self.files}, under=f"{self.table.location()}/")
        return RecordIndex(self._read(range(len(self.files)), columns=names, keep=True), self._deleted_places)

    def ids(self, rules: Rules) -> pl.DataFrame:
        """Gives back the keys of all records and the ids of their entities, which is what outlives a change of the settings."""
        return self._live(range(len(self.files)), columns=[*rules.keys, ENTITY_ID, PREVIOUS])

    def whole(self, numbers: Sequence[int]) -> pl.DataFrame:
        """Gives back all columns of some files, each row with its place."""
        return self._live(numbers, columns=self.columns)

    def complete(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Gives back rows of the index with all columns of the table."""
        ordered = rows.sort(PLACE)
        missing = [name for name in self.columns if name not in rows.columns]
        places = {number: each[ROW_NUMBER] for (number,), each in ordered.partition_by(FILE_NUMBER, as_dict=True).items()}
        positions = {self.files[number].path: rows.to_arrow() for number, rows in sorted(places.items())}
        found = [self._empty(missing), *map(pl.DataFrame, read_rows(self.table, positions, columns=missing))]
        return pl.concat([ordered, pl.concat(found)], how="horizontal").select(*self.columns, *PLACE)

    @property
    def columns(self) -> list[str]:
        return [field.name for field in self.table.schema().fields]

    @cached_property
    def deleted(self) -> tuple[pl.Series, ...]:
        """For each file the numbers of its rows that were deleted."""
        return tuple(pl.Series(read_positions(self.table, file.path, file.deletes)).cast(pl.Int64) for file in self.files)

    @property
    def _deleted_places(self) -> pl.DataFrame:
        places = [
            pl.select(pl.lit(number, pl.UInt32).alias(FILE_NUMBER), rows.alias(ROW_NUMBER))
            for number, rows in enumerate(self.deleted)
            if len(rows)
        ]
        return pl.concat([pl.DataFrame(schema={FILE_NUMBER: pl.UInt32, ROW_NUMBER: pl.Int64}), *places])

    def small(self, *, rows: int) -> list[int]:
        """Gives back the files with fewer rows."""
        return [number for number, file in enumerate(self.files) if file.rows - len(self.deleted[number]) < rows]

    def to_arrow(self, rows: pl.DataFrame) -> pa.Table:
        return rows.select(self.columns).to_arrow(compat_level=pl.CompatLevel.oldest())

    def _live(self, numbers: Sequence[int], *, columns: Sequence[str]) -> pl.DataFrame:
        """Gives back the rows of files that are still there."""
        rows = self._read(numbers, columns=columns)
        if not any(len(self.deleted[number]) for number in numbers):
            return rows
        return rows.join(self._deleted_places, on=PLACE, how="anti", maintain_order="left")

    def _read(self, numbers: Sequence[int], *, columns: Sequence[str], keep: bool = False) -> pl.DataFrame:
        """Gives back the rows of files, also those that were deleted, each with its place."""
        known = {number: self.read_files.get(self.files[number].path, columns) for number in numbers}
        unread = [number for number, frame in known.items() if frame is None]
        found = read_arrow(self.table, [self.files[number].path for number in unread], columns=columns)
        read = dict(zip(unread, map(pl.DataFrame, found), strict=True))
        for number, each in read.items() if keep else ():
            self.read_files.put(self.files[number].path, each)
        frames = {**known, **read}
        placed = [_placed(each, number) for number, each in frames.items() if each is not None]
        return pl.concat([_placed(self._empty(columns), 0), *placed])

    def _empty(self, columns: Sequence[str]) -> pl.DataFrame:
        return pl.DataFrame(self.table.schema().as_arrow().empty_table().select(list(columns)))


def _placed(rows: pl.DataFrame, number: int) -> pl.DataFrame:
    return rows.with_columns(
        pl.lit(number, pl.UInt32).alias(FILE_NUMBER), pl.int_range(rows.height, dtype=pl.Int64).alias(ROW_NUMBER)
    )
