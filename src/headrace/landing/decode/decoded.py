"""What a decoder gives back: columns of the good rows, and the bad rows with their reasons."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa

from headrace.landing.records import RecordBatch


@dataclass(frozen=True)
class Decoded:
    """Row `i` of `columns` came from message `rows[i]`; `bad` maps the other messages to why they were refused."""

    columns: Mapping[str, pa.Array]
    rows: Sequence[int]
    bad: Mapping[int, str]
    extras: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Block:
    """Columns of records that were decoded at once, all of them good, and where each came from."""

    columns: Mapping[str, pa.Array]
    places: pa.Table


class Decoder(Protocol):
    """Turns messages into columns."""

    def decode(self, values: list[bytes | None]) -> Decoded:
        """Gives back each value either as a row or as bad."""

    def decode_block(self, batches: Sequence[RecordBatch]) -> Block | None:
        """Gives back the wanted records of the batches, or None: then they are to be split and decoded as values."""
