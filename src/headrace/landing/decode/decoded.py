"""The result of a decoder: columns of the good rows, and the reasons of the bad ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import compress
from typing import NamedTuple, Protocol

import pyarrow as pa

from headrace.kafka.records import RecordBatch
from headrace.spec.model.types import Column


@dataclass(frozen=True)
class Decoded:
    """Row `i` of `columns` came from message `rows[i]`; `bad` maps every other message to its reason.

    `refused` are the reasons why all messages of a schema were refused.
    """

    columns: Mapping[str, pa.Array]
    rows: Sequence[int]
    bad: Mapping[int, str]
    extras: Mapping[str, int] = field(default_factory=dict)
    refused: tuple[str, ...] = ()

    def without(self, late: Mapping[int, str]) -> Decoded:
        """Return the result without rows that turned out to be bad: `late` has the reasons by row."""
        if not late:
            return self
        keep = [index not in late for index in range(len(self.rows))]
        mask = pa.array(keep)
        return replace(
            self,
            columns={name: array.filter(mask) for name, array in self.columns.items()},
            rows=list(compress(self.rows, keep)),
            bad={**self.bad, **{self.rows[index]: reason for index, reason in late.items()}},
        )


class Part(NamedTuple):
    """Rows of one schema: row `i` of `columns` came from message `rows[i]`."""

    rows: Sequence[int]
    columns: Mapping[str, pa.Array]


def merge_parts(
    parts: Sequence[Part], *, names: Sequence[str], schema: pa.Schema, bad: Mapping[int, str], refused: tuple[str, ...] = ()
) -> Decoded:
    """Return the rows of all parts in the order of their messages. A column that a part lacks is null in its rows."""
    parts = [part for part in parts if part.rows]
    if not parts:
        return Decoded({}, [], bad, refused=refused)

    def column(name: str, part: Part) -> pa.Array:
        array = part.columns.get(name)
        return pa.nulls(len(part.rows), schema.field(name).type) if array is None else array

    if len(parts) == 1:
        return Decoded({name: column(name, parts[0]) for name in names}, parts[0].rows, bad, refused=refused)
    rows = [row for part in parts for row in part.rows]
    order = pa.array(sorted(range(len(rows)), key=rows.__getitem__), pa.int64())
    columns = {name: pa.concat_arrays([column(name, part) for part in parts]).take(order) for name in names}
    return Decoded(columns, sorted(rows), bad, refused=refused)


class GrowthError(Exception):
    """Messages have new or wider columns than their table: `columns` are the columns of each such schema."""

    def __init__(self, columns: tuple[tuple[Column, ...], ...]) -> None:
        super().__init__(columns)
        self.columns = columns


@dataclass(frozen=True)
class Block:
    """The columns of records that were decoded at once, all good, and the coordinates of each."""

    columns: Mapping[str, pa.Array]
    places: pa.Table


class Decoder(Protocol):
    """Turn messages into columns."""

    def decode(self, values: list[bytes | None]) -> Decoded:
        """Return each value as a row or as a bad message."""

    def decode_block(self, batches: Sequence[RecordBatch]) -> Block | None:
        """Return the wanted records of the batches, or None if the caller has to decode them as values."""
