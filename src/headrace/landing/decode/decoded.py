"""What a decoder returns: columns of the good rows, and the bad rows with their reasons."""

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
    """Row `i` of `columns` came from message `rows[i]`; `bad` maps the other messages to why they were refused.

    `refused` are the reasons for which all messages of a schema were.
    """

    columns: Mapping[str, pa.Array]
    rows: Sequence[int]
    bad: Mapping[int, str]
    extras: Mapping[str, int] = field(default_factory=dict)
    refused: tuple[str, ...] = ()

    def without(self, late: Mapping[int, str]) -> Decoded:
        """Return the rest, where some of the rows turned out to be bad: `late` has the reasons by row."""
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
    """Return the rows of all parts in the order of their messages; a column that a part lacks is null there."""
    parts = [part for part in parts if part.rows]
    if not parts:
        return Decoded({}, [], bad, refused=refused)

    def column(name: str, part: Part) -> pa.Array:
        found = part.columns.get(name)
        return pa.nulls(len(part.rows), schema.field(name).type) if found is None else found

    if len(parts) == 1:
        return Decoded({name: column(name, parts[0]) for name in names}, parts[0].rows, bad, refused=refused)
    rows = [row for part in parts for row in part.rows]
    order = pa.array(sorted(range(len(rows)), key=rows.__getitem__), pa.int64())
    columns = {name: pa.concat_arrays([column(name, part) for part in parts]).take(order) for name in names}
    return Decoded(columns, sorted(rows), bad, refused=refused)


class GrowthError(Exception):
    """Messages have columns that their table lacks, or wider ones: `columns` are those of each schema that has."""

    def __init__(self, columns: tuple[tuple[Column, ...], ...]) -> None:
        super().__init__(columns)
        self.columns = columns


@dataclass(frozen=True)
class Block:
    """Columns of records that were decoded at once, all of them good, and where each came from."""

    columns: Mapping[str, pa.Array]
    places: pa.Table


class Decoder(Protocol):
    """Turns messages into columns."""

    def decode(self, values: list[bytes | None]) -> Decoded:
        """Return each value either as a row or as bad."""

    def decode_block(self, batches: Sequence[RecordBatch]) -> Block | None:
        """Return the wanted records of the batches, or None: then they are to be split and decoded as values."""
