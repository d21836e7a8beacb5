"""Read records one by one, with any keys, headers and null values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple


class Record(NamedTuple):
    """A record of a batch. Its time and offset are relative to the batch."""

    timestamp: int
    offset: int
    key: bytes | None
    value: bytes | None


def walk_records(records: memoryview, count: int) -> Iterator[Record]:
    """Yield `count` records. Numbers are zigzag varints. Headers are skipped."""
    at = 0
    for _ in range(count):
        length, at = _number(records, at)
        end = at + length
        timestamp, at = _number(records, at + 1)
        offset, at = _number(records, at)
        key, at = _bytes(records, at)
        value, at = _bytes(records, at)
        if not at < end <= len(records):
            raise ValueError("a record is longer than its length field")
        yield Record(timestamp, offset, key, value)
        at = end


def _bytes(records: memoryview, at: int) -> tuple[bytes | None, int]:
    size, at = _number(records, at)
    if size < 0:
        return None, at
    return bytes(records[at : at + size]), at + size


def _number(records: memoryview, at: int) -> tuple[int, int]:
    rest = shift = 0
    while True:
        byte = records[at]
        at += 1
        rest |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (rest >> 1) ^ -(rest & 1), at
        shift += 7
