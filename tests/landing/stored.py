"""Hand-made record batches, as a broker stores them."""

from __future__ import annotations

import gzip
import struct
from collections.abc import Sequence
from dataclasses import dataclass

import google_crc32c
import pyarrow as pa

from headrace.kafka.records import RecordBatch

MOMENT = 1_771_963_198_501
GZIP, SNAPPY, LZ4, ZSTD, XERIAL = 1, 2, 3, 4, -2
LOG_APPEND_TIME, TRANSACTIONAL, CONTROL = 0x08, 0x10, 0x20
LAST = 2**62


@dataclass(frozen=True)
class Stored:
    """A record to store. Its offset and time are relative to its batch."""

    value: bytes | None
    offset: int
    time: int = 0
    key: bytes | None = None
    headers: Sequence[tuple[str, bytes]] = ()


def zigzag(number: int) -> bytes:
    rest = (number << 1) ^ (number >> 70)
    out = bytearray()
    while rest > 0x7F:
        out.append((rest & 0x7F) | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def encode_record(record: Stored) -> bytes:
    body = b"\x00" + zigzag(record.time) + zigzag(record.offset) + _bytes(record.key) + _bytes(record.value)
    body += zigzag(len(record.headers))
    for name, value in record.headers:
        body += _bytes(name.encode()) + _bytes(value)
    return zigzag(len(body)) + body


def records_of(values: Sequence[bytes | None]) -> list[Stored]:
    return [Stored(value, offset) for offset, value in enumerate(values)]


def batch_of(
    records: Sequence[Stored], *, base_offset: int = 0, start: int = 0, end: int = LAST, partition: int = 0, times: int = MOMENT
) -> RecordBatch:
    """Return a batch as it is after fetching and splitting."""
    return RecordBatch(
        partition=partition,
        base_offset=base_offset,
        last_offset=base_offset + max(record.offset for record in records),
        timestamp=times,
        one_time=False,
        count=len(records),
        records=memoryview(b"".join(map(encode_record, records))),
        start=start,
        end=end,
    )


def store(
    records: Sequence[Stored],
    *,
    base_offset: int = 0,
    codec: int = 0,
    flags: int = 0,
    producer: int = -1,
    last_delta: int | None = None,
    largest_time: int = MOMENT,
) -> bytes:
    """Return a batch as the broker sends it."""
    body = _compress(codec, b"".join(map(encode_record, records)))
    delta = last_delta if last_delta is not None else max((record.offset for record in records), default=0)
    after = struct.pack(">hiqqqhii", abs(codec) | flags, delta, MOMENT, largest_time, producer, 0, 0, len(records)) + body
    checked = struct.pack(">ibI", 0, 2, google_crc32c.value(after)) + after
    return struct.pack(">qi", base_offset, len(checked)) + checked


def store_marker(*, base_offset: int, producer: int, commit: bool, time: int = 0) -> bytes:
    """Return the batch that ends a transaction."""
    record = Stored(struct.pack(">hi", 0, 0), 0, time, key=struct.pack(">hh", 0, int(commit)))
    return store([record], base_offset=base_offset, flags=TRANSACTIONAL | CONTROL, producer=producer)


def _compress(codec: int, body: bytes) -> bytes:
    if codec == GZIP:
        return gzip.compress(body)
    if codec == XERIAL:  # as Java clients send it
        half = len(body) // 2
        blocks = [pa.Codec("snappy").compress(part, asbytes=True) for part in (body[:half], body[half:])]
        framed = b"".join(struct.pack(">i", len(block)) + block for block in blocks)
        return b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1) + framed
    names = {SNAPPY: "snappy", LZ4: "lz4", ZSTD: "zstd"}
    return pa.Codec(names[codec]).compress(body, asbytes=True) if codec else body


def _bytes(value: bytes | None) -> bytes:
    return zigzag(-1) if value is None else zigzag(len(value)) + value
