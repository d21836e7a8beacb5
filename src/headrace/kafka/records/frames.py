"""Read the records of many batches in one pass.

Kafka frames a record with Avro's numbers: zigzag, seven bits per byte. The records of a batch are therefore a block of an Avro
container file with the rows

    length, attributes, timestamp, offset, key, the value's size, the value, number of headers

and polars reads them at once. A pass ignores record borders, so the result is proven: in every row, the shortest encodings of
the values add up to the record's own length, and over all rows to the size of the block. A decoder never consumes less than the
shortest encoding, so it consumed exactly that; the first row starts at the first record, so every row starts at its record.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from headrace.kafka.records.batches import RecordBatch
from headrace.kafka.records.container import REFUSED, container_file, container_header, number_size, read_container

_NUMBERS_BEFORE_KEY = 4
_LENGTH, _TIMESTAMP, _OFFSET = (pl.col(f"kafka_{name}") for name in ("length", "timestamp", "offset"))
_KEY_SIZE = pl.col("kafka_key").bin.size().cast(pl.Int64)
_VALUE_SIZE = pl.col("kafka_value").bin.size().cast(pl.Int64)

SIZE = pl.col("kafka_size")
"""The size of a value that is read as fields."""


@dataclass(frozen=True)
class Framed:
    """Records that were read in one pass, one row each. `block` has the bytes that they were read from.

    Offsets and times are still relative to the batches.
    """

    frame: pl.DataFrame
    block: bytes
    start: int
    keyed: bool

    def value_starts(self) -> pl.Series:
        """Return the position in `block` of each value that was read as fields."""
        record = number_size(_LENGTH) + _LENGTH
        before = number_size(_LENGTH) + _size_before_value(self.keyed) + number_size(SIZE)
        return self.frame.select(record.cum_sum() - record + before + self.start).to_series()


class Frames:
    """Read records whose values are encoded Avro `fields`; without fields, a value is bytes."""

    def __init__(self, fields: Sequence[dict[str, Any]] = ()) -> None:
        self._value = [_long("kafka_size"), *fields] if fields else [{"name": "kafka_value", "type": "bytes"}]
        self._value_size = SIZE if fields else _VALUE_SIZE
        self._headers = {keyed: self._header(keyed) for keyed in (False, True)}

    def read(self, batches: Sequence[RecordBatch]) -> Framed | None:
        """Return all records of the batches, or None if they can't be read in one pass or proven.

        The caller has to prove that the fields of each value add up to its size.
        """
        keyed = _has_key(batches[0].records)
        count = sum(batch.count for batch in batches)
        size = sum(len(batch.records) for batch in batches)
        block, start = container_file(self._headers[keyed], count, size, (batch.records for batch in batches))
        try:
            frame = read_container(block)
        except REFUSED:
            return None
        if frame.height != count or not self._is_proven(frame, keyed=keyed, size=size):
            return None
        return Framed(frame, block, start, keyed)

    def _is_proven(self, frame: pl.DataFrame, *, keyed: bool, size: int) -> bool:
        is_plain = (pl.col("kafka_attributes") == 0) & (pl.col("kafka_headers") == 0)
        if not keyed:
            is_plain &= pl.col("kafka_key") == -1
        measured = _size_before_value(keyed) + number_size(self._value_size) + self._value_size + 1
        proof = frame.select(
            is_plain.all().alias("plain"),
            (measured == _LENGTH).all().alias("rows"),
            (number_size(_LENGTH) + _LENGTH).sum().alias("size"),
        )
        return proof.row(0) == (True, True, size)

    def _header(self, keyed: bool) -> bytes:
        before = map(_long, ("kafka_length", "kafka_attributes", "kafka_timestamp", "kafka_offset"))
        key = {"name": "kafka_key", "type": "bytes"} if keyed else _long("kafka_key")
        fields = [*before, key, *self._value, _long("kafka_headers")]
        return container_header(json.dumps({"type": "record", "name": "kafka_record", "fields": fields}))


def _size_before_value(keyed: bool) -> pl.Expr:
    """Return the number of bytes between a record's length and its value's size: attributes, time, offset and key."""
    key = number_size(_KEY_SIZE) + _KEY_SIZE if keyed else 1
    return 1 + number_size(_TIMESTAMP) + number_size(_OFFSET) + key


def _has_key(records: memoryview) -> bool:
    """Return whether the first record has a key. Its size follows four numbers, and is -1 (1 in zigzag) without a key."""
    at = 0
    for _ in range(_NUMBERS_BEFORE_KEY):
        while records[at] >= 0x80:
            at += 1
        at += 1
    return records[at] != 1


def _long(name: str) -> dict[str, Any]:
    return {"name": name, "type": "long"}
