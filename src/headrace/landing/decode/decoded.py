"""What a decoder gives back: columns of the good rows, and the bad rows with their reasons."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa


@dataclass(frozen=True)
class Decoded:
    """Row `i` of `columns` came from message `rows[i]`; `bad` maps the other messages to why they were refused."""

    columns: Mapping[str, pa.Array]
    rows: list[int]
    bad: Mapping[int, str]
    extras: Mapping[str, int] = field(default_factory=dict)


class Decoder(Protocol):
    """Turns message values into columns. Every message ends in exactly one of `rows` and `bad`."""

    def decode(self, values: list[bytes | None]) -> Decoded: ...
