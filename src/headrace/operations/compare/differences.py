"""What differs between a table of Postgres and the lake's, found by going through both in the order of their key."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from headrace.errors import LandingError
from headrace.operations.compare.lake_tables import LakeRow
from headrace.operations.compare.source_tables import Key, Row, SourceColumn
from headrace.operations.compare.values import is_same, plain


@dataclass(frozen=True)
class Difference:
    """A row that is not the same on both sides. `columns` differ; without any, the row is on one side only: in the lake,
    where `lsn` is that of its last change, or else in Postgres."""

    key: Key
    columns: tuple[str, ...] = ()
    lsn: int = 0


@dataclass(frozen=True)
class Layout:
    """Which of Postgres's columns the lake has too, under its names for them, and which of them are the key."""

    columns: tuple[SourceColumn, ...]
    in_lake: tuple[str, ...]
    keys: tuple[str, ...]

    @staticmethod
    def of(columns: Sequence[SourceColumn], lake: Sequence[str], *, keys: Sequence[str]) -> Layout:
        have = set(lake)
        return Layout(tuple(columns), tuple(each.in_lake for each in columns if each.in_lake in have), tuple(keys))

    @property
    def source_keys(self) -> tuple[str, ...]:
        """What the keys are called in Postgres."""
        names = {column.in_lake: column.name for column in self.columns}
        return tuple(names[key] for key in self.keys)

    def key_of_source(self, row: Row) -> Key:
        return self._key(row, [column.in_lake for column in self.columns])

    def key_of_lake(self, row: LakeRow) -> Key:
        return self._key(row.values, self.in_lake)

    def differing(self, row: Row, lake: LakeRow) -> tuple[str, ...]:
        """Return the columns whose values differ. A column that the lake does not have is null there."""
        there = dict(zip(self.in_lake, lake.values, strict=True))
        pairs = zip(self.columns, row, strict=True)
        return tuple(column.name for column, value in pairs if not is_same(value, there.get(column.in_lake), kind=column.kind))

    def _key(self, values: Sequence[Any], names: Sequence[str]) -> Key:
        places = {name: place for place, name in enumerate(names)}
        kinds = {column.in_lake: column.kind for column in self.columns}
        return tuple(plain(values[places[key]], kind=kinds[key]) for key in self.keys)


class Counted:
    """Rows on their way, counted."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self._rows = rows
        self.count = 0

    def __iter__(self) -> Iterator[Row]:
        for row in self._rows:
            self.count += 1
            yield row


def compare_in_order(source: Iterable[Row], lake: Iterable[LakeRow], *, layout: Layout) -> Iterator[Difference]:
    """Yield what differs between rows that both come in the order of their key, one of each in memory."""
    ours = _in_order(((layout.key_of_source(row), row) for row in source), side="Postgres")
    theirs = _in_order(((layout.key_of_lake(row), row) for row in lake), side="the lake")
    one, other = next(ours, None), next(theirs, None)
    while one is not None or other is not None:
        if other is None or (one is not None and one[0] < other[0]):
            assert one is not None
            yield Difference(one[0])
            one = next(ours, None)
        elif one is None or other[0] < one[0]:
            yield Difference(other[0], lsn=other[1].lsn)
            other = next(theirs, None)
        else:
            columns = layout.differing(one[1], other[1])
            if columns:
                yield Difference(one[0], columns, other[1].lsn)
            one, other = next(ours, None), next(theirs, None)


def compare_found(
    source: Iterable[Row], lake: Iterable[LakeRow], *, layout: Layout, wanted: Iterable[Key]
) -> Iterator[Difference]:
    """Yield what differs between the rows of some keys, in any order."""
    ours = {layout.key_of_source(row): row for row in source}
    theirs = {layout.key_of_lake(row): row for row in lake}
    for key in wanted:
        one, other = ours.get(key), theirs.get(key)
        if one is not None and other is not None:
            columns = layout.differing(one, other)
            if columns:
                yield Difference(key, columns, other.lsn)
        elif one is not None:
            yield Difference(key)
        elif other is not None:
            yield Difference(key, lsn=other.lsn)


def _in_order(rows: Iterator[tuple[Key, Any]], *, side: str) -> Iterator[tuple[Key, Any]]:
    last: Key | None = None
    for key, row in rows:
        if last is not None and not last < key:
            raise LandingError(
                f"two rows have the key {_shown(key)}" if last == key else f"rows come out of order at the key {_shown(key)}",
                where=side,
                next_step="Rows are compared by a key that tells them apart: see keys in the table's file.",
            )
        last = key
        yield key, row


def _shown(key: Key) -> str:
    return ", ".join(map(str, key))
