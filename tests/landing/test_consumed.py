"""Messages of librdkafka become record batches: with gaps, any times, and null values."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, TIMESTAMP_NOT_AVAILABLE

from headrace.kafka.records import Position, Records, consumed, split_messages
from headrace.kafka.records.consumed import Consumed

NOW = 1_700_000_000_000


class Message:
    """A consumed message."""

    def __init__(self, offset: int, value: bytes | None, time: int | None = NOW) -> None:
        self._offset, self._value, self._time = offset, value, time

    def offset(self) -> int:
        return self._offset

    def value(self) -> bytes | None:
        return self._value

    def timestamp(self) -> tuple[int, int]:
        return (TIMESTAMP_NOT_AVAILABLE, 0) if self._time is None else (TIMESTAMP_CREATE_TIME, self._time)


def rows_of(messages: list[Message], *, start: int, end: int) -> list[tuple[int, int, bytes | None]]:
    """Return offset, time and value of the messages in the range, after they were encoded and decoded."""
    part = Consumed("things", 3, start)
    for message in messages:
        encoded: Any = message
        part.add(encoded)
    position = Position("things", 3, start, end)
    assert part.next_offset(position) == messages[-1].offset() + 1
    records = Records("things")
    for batch in part.batches(position):
        records.add(batch)
    rows = []
    for read in split_messages(records, rows=1_000):
        places = read.places.to_pydict()
        assert set(places["partition"]) <= {3}
        rows += list(zip(places["offset"], places["timestamp"], read.values, strict=True))
    return rows


@pytest.mark.parametrize("batch_bytes", [0, 1 << 20])
def test_consumed_returns_messages_with_gaps_and_any_times(batch_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumed, "_BATCH_BYTES", batch_bytes)
    messages = [
        Message(7, b"a"),
        Message(9, None, NOW - 100_000),
        Message(1_000, b"", NOW + 100_000),
        Message(70_000, b"x" * 20_000, None),
    ]
    assert rows_of(messages, start=7, end=100_000) == [
        (7, NOW, b"a"),
        (9, NOW - 100_000, None),
        (1_000, NOW + 100_000, b""),
        (70_000, -1, b"x" * 20_000),
    ]


def test_consumed_returns_only_the_range() -> None:
    messages = [Message(offset, b"v") for offset in (4, 5, 8, 9)]
    assert [offset for offset, _, _ in rows_of(messages, start=5, end=9)] == [5, 8]


def test_consumed_batches_are_bounded() -> None:
    part = Consumed("things", 0, 0)
    for offset in range(10):
        message: Any = Message(offset, b"x" * 200_000)
        part.add(message)
    assert max(len(batch.records) for batch in part.batches(Position("things", 0, 0, 10))) < 500_000
