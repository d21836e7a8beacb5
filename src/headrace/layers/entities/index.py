"""The records that a table of entities holds: what is needed to resolve others with them, and the file that each is in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl
import pyarrow as pa
from pyiceberg.table import Table

from headrace.layers.entities.resolve import Rules
from headrace.spec.matching import CONFIDENCE, ENTITY_ID, PREVIOUS, UNUSED
from headrace.tables.arrow_files import read_arrow

FILE_NUMBER = "__file"


@dataclass(frozen=True)
class Stored:
    """A table as one snapshot has it. Its files are called by their number in `paths`."""

    table: Table
    paths: tuple[str, ...]

    def index(self, rules: Rules) -> pl.DataFrame:
        """Gives back all records: keys, values and entities, each with the number of its file."""
        names = [*rules.keys, *rules.columns, ENTITY_ID, PREVIOUS, UNUSED, CONFIDENCE]
        return self._read(range(len(self.paths)), columns=names)

    def ids(self, rules: Rules) -> pl.DataFrame:
        """Gives back the keys of all records and the ids of their entities, which is what outlives a change of the settings."""
        return self._read(range(len(self.paths)), columns=[*rules.keys, ENTITY_ID, PREVIOUS])

    def whole(self, numbers: Sequence[int]) -> pl.DataFrame:
        """Gives back all columns of some files, each row with the number of its file."""
        return self._read(numbers, columns=self.columns)

    @property
    def columns(self) -> list[str]:
        return [field.name for field in self.table.schema().fields]

    def small(self, *, rows: int) -> list[int]:
        """Gives back the files with fewer rows."""
        counts = {task.file.file_path: task.file.record_count for task in self.table.scan().plan_files()}
        return [number for number, path in enumerate(self.paths) if counts.get(path, rows) < rows]

    def to_arrow(self, rows: pl.DataFrame) -> pa.Table:
        return rows.select(self.columns).to_arrow(compat_level=pl.CompatLevel.oldest())

    def _read(self, numbers: Sequence[int], *, columns: Sequence[str]) -> pl.DataFrame:
        empty = pl.DataFrame(self.table.schema().as_arrow().empty_table().select(list(columns)))
        found = read_arrow(self.table, [self.paths[number] for number in numbers], columns=columns)
        frames = [
            pl.DataFrame(each).with_columns(pl.lit(number, pl.UInt32).alias(FILE_NUMBER))
            for number, each in zip(numbers, found, strict=True)
        ]
        return pl.concat([empty.with_columns(pl.lit(0, pl.UInt32).alias(FILE_NUMBER)), *frames])
