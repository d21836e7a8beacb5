"""Check and decompress Kafka's record batches (format 2), and drop records that were never committed.

A batch has a header of 61 bytes followed by its records. This module drops batches of aborted transactions and transaction
markers, so that no other module has to handle them.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import google_crc32c

from headrace.errors import LandingError, UnavailableError
from headrace.kafka.records.compression import decompress
from headrace.kafka.records.walk import walk_records

_HEADER = struct.Struct(">qiibIhiqqqhii")
_UNCOUNTED = 12  # bytes of a batch that its length field excludes
_CRC_STARTS = 21
_FORMAT = 2
_CODEC, _LOG_APPEND_TIME, _TRANSACTIONAL, _CONTROL = 0x07, 0x08, 0x10, 0x20
_MARKER = struct.Struct(">hh")
_ABORT = 0


@dataclass(frozen=True)
class RecordBatch:
    """`count` records of one partition. The wanted ones have the offsets `start` (included) to `end` (excluded).

    A record's offset is relative to `base_offset`, and its time to `timestamp`, unless the broker set `one_time` for all.
    """

    partition: int
    base_offset: int
    last_offset: int
    timestamp: int
    one_time: bool
    count: int
    records: memoryview
    start: int
    end: int

    @property
    def is_cut(self) -> bool:
        return self.base_offset < self.start or self.last_offset >= self.end


@dataclass
class Records:
    """Record batches of one topic."""

    topic: str
    batches: list[RecordBatch] = field(default_factory=list)
    bytes: int = 0

    def add(self, batch: RecordBatch) -> None:
        self.batches.append(batch)
        self.bytes += len(batch.records)

    @property
    def largest(self) -> int:
        """An upper bound for the size of a message."""
        return max((len(batch.records) for batch in self.batches), default=0)


@dataclass(frozen=True)
class Position:
    """The read position in a range of one partition: the next offset, and the end."""

    topic: str
    partition: int
    next: int
    end: int


def next_offset(data: bytes, position: Position) -> int:
    """Return the offset after the last complete batch of `data`, or the position's own without one."""
    offset = position.next
    for _, header in _headers(memoryview(data), position):
        offset = max(offset, header.last_offset + 1)
    return offset


def split_batches(data: bytes, position: Position, aborted: Sequence[tuple[int, int]]) -> Iterator[RecordBatch]:
    """Yield the batches with committed records of the range. The last batch of `data` may be incomplete.

    `aborted` has the producer and the first offset of each aborted transaction in `data`.
    """
    starts = sorted(aborted, key=lambda transaction: transaction[1], reverse=True)
    aborting: set[int] = set()
    for batch, header in _headers(memoryview(data), position):
        if header.last_offset < position.next:
            continue
        if header.base_offset >= position.end:
            return
        if google_crc32c.value(bytes(batch[_CRC_STARTS:])) != header.crc:
            raise UnavailableError(
                f"the record batch at offset {header.base_offset} is damaged: its checksum is wrong",
                where=f"{position.topic}[{position.partition}]",
                next_step="Headrace reads it again. If this persists, the broker's disk is damaged.",
            )
        while starts and starts[-1][1] <= header.last_offset:
            aborting.add(starts.pop()[0])
        body = batch[_HEADER.size :]
        if header.attributes & _CONTROL:
            if _is_abort(body, header.records):
                aborting.discard(header.producer)
            continue
        is_aborted = header.attributes & _TRANSACTIONAL and header.producer in aborting
        if header.records and not is_aborted:
            one_time = bool(header.attributes & _LOG_APPEND_TIME)
            yield RecordBatch(
                partition=position.partition,
                base_offset=header.base_offset,
                last_offset=header.last_offset,
                timestamp=header.largest_time if one_time else header.base_time,
                one_time=one_time,
                count=header.records,
                records=decompress(header.attributes & _CODEC, body),
                start=position.next,
                end=position.end,
            )


class _Header(NamedTuple):
    """The header of a batch, in stored order."""

    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_time: int
    largest_time: int
    producer: int
    producer_epoch: int
    base_sequence: int
    records: int

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta


def _headers(data: memoryview, position: Position) -> Iterator[tuple[memoryview, _Header]]:
    """Yield complete batches with their headers."""
    at = 0
    while at + _HEADER.size <= len(data):
        header = _Header(*_HEADER.unpack_from(data, at))
        if header.magic != _FORMAT:
            raise LandingError(
                f"messages from offset {position.next} on have message format {header.magic}, and Headrace reads only format 2",
                where=f"{position.topic}[{position.partition}]",
                next_step="Copy the topic to a new one: Kafka writes format 2 since version 0.11.",
            )
        end = at + _UNCOUNTED + header.length
        if end > len(data):
            return
        yield data[at:end], header
        at = end


def _is_abort(body: memoryview, count: int) -> bool:
    """Return whether a control batch aborts a transaction. Its record's key is a version and a type."""
    return any(record.key is not None and _MARKER.unpack_from(record.key)[1] == _ABORT for record in walk_records(body, count))
