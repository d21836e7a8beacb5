"""Find the differences between a Postgres table and its lake table by merging both in key order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from headrace.errors import LandingError
from headrace.operations.compare.lake_tables import LakeRow
from headrace.operations.compare.source_tables import Key, Row, SourceColumn
from headrace.operations.compare.values import canonical, is_same


@dataclass(frozen=True)
class Difference:
    """A row that differs. Without `columns`, it is on one side only: in the lake if it has an `lsn` (of its last change), else
    in Postgres."""

    key: Key
    columns: tuple[str, ...] = ()
    lsn: int = 0


@dataclass(frozen=True)
class Layout:
    """The columns of Postgres, the lake's names of the shared ones, and the key."""

    columns: tuple[SourceColumn, ...]
    in_lake: tuple[str, ...]
    keys: tuple[str, ...]

    @staticmethod
    def of(columns: Sequence[SourceColumn], lake: Sequence[str], *, keys: Sequence[str]) -> Layout:
        have = set(lake)
        return Layout(tuple(columns), tuple(column.in_lake for column in columns if column.in_lake in have), tuple(keys))

    @property
    def source_keys(self) -> tuple[str, ...]:
        """The names of the key columns in Postgres."""
        names = {column.in_lake: column.name for column in self.columns}
        return tuple(names[key] for key in self.keys)

    def key_of_source(self, row: Row) -> Key:
        return self._key(row, [column.in_lake for column in self.columns])

    def key_of_lake(self, row: LakeRow) -> Key:
        return self._key(row.values, self.in_lake)

    def differing(self, row: Row, lake: LakeRow) -> tuple[str, ...]:
        """Return the columns whose values differ. A column that the lake lacks counts as null."""
        lake_values = dict(zip(self.in_lake, lake.values, strict=True))
        pairs = zip(self.columns, row, strict=True)
        return tuple(
            column.name for column, value in pairs if not is_same(value, lake_values.get(column.in_lake), kind=column.kind)
        )

    def _key(self, values: Sequence[Any], names: Sequence[str]) -> Key:
        places = {name: place for place, name in enumerate(names)}
        kinds = {column.in_lake: column.kind for column in self.columns}
        return tuple(canonical(values[places[key]], kind=kinds[key]) for key in self.keys)


class Counted:
    """Rows that are counted while they are iterated."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self._rows = rows
        self.count = 0

    def __iter__(self) -> Iterator[Row]:
        for row in self._rows:
            self.count += 1
            yield row


def compare_in_order(source: Iterable[Row], lake: Iterable[LakeRow], *, layout: Layout) -> Iterator[Difference]:
    """Yield the differences between rows in key order, with one row of each side in memory."""
    source_rows = _in_order(((layout.key_of_source(row), row) for row in source), side="Postgres")
    lake_rows = _in_order(((layout.key_of_lake(row), row) for row in lake), side="the lake")
    source_row, lake_row = next(source_rows, None), next(lake_rows, None)
    while source_row is not None or lake_row is not None:
        if lake_row is None or (source_row is not None and source_row[0] < lake_row[0]):
            assert source_row is not None
            yield Difference(source_row[0])
            source_row = next(source_rows, None)
        elif source_row is None or lake_row[0] < source_row[0]:
            yield Difference(lake_row[0], lsn=lake_row[1].lsn)
            lake_row = next(lake_rows, None)
        else:
            columns = layout.differing(source_row[1], lake_row[1])
            if columns:
                yield Difference(source_row[0], columns, lake_row[1].lsn)
            source_row, lake_row = next(source_rows, None), next(lake_rows, None)


def compare_by_key(
    source: Iterable[Row], lake: Iterable[LakeRow], *, layout: Layout, wanted: Iterable[Key]
) -> Iterator[Difference]:
    """Yield the differences between the rows of the `wanted` keys, which may come in any order."""
    source_rows = {layout.key_of_source(row): row for row in source}
    lake_rows = {layout.key_of_lake(row): row for row in lake}
    for key in wanted:
        source_row, lake_row = source_rows.get(key), lake_rows.get(key)
        if source_row is not None and lake_row is not None:
            columns = layout.differing(source_row, lake_row)
            if columns:
                yield Difference(key, columns, lake_row.lsn)
        elif source_row is not None:
            yield Difference(key)
        elif lake_row is not None:
            yield Difference(key, lsn=lake_row.lsn)


def _in_order(rows: Iterator[tuple[Key, Any]], *, side: str) -> Iterator[tuple[Key, Any]]:
    last: Key | None = None
    for key, row in rows:
        if last is not None and not last < key:
            raise LandingError(
                f"two rows have the key {_shown(key)}" if last == key else f"rows are not in order at the key {_shown(key)}",
                where=side,
                next_step="The comparison needs a unique key: check keys in the table's file.",
            )
        last = key
        yield key, row


def _shown(key: Key) -> str:
    return ", ".join(map(str, key))
