"""Read a few messages of a topic for display, without side effects on the broker.

The consumer is assigned its partitions, so it joins no group, and it commits no offsets. It skips messages of open and aborted
transactions.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime, timezone

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka import Message as KafkaMessage

from headrace.errors import UnavailableError
from headrace.kafka.client import KafkaServers

_READ_SECONDS = 8.0
_WIDER = 8  # times as many offsets in the next try: transaction markers take offsets but are no messages
_TRIES = 3
_AT_ONCE = 500

Bounds = Mapping[int, tuple[int, int]]
"""The oldest offset of each partition of one topic, and the offset after its last message."""


@dataclass(frozen=True)
class Message:
    """A Kafka message. `at` is None if it has no timestamp."""

    partition: int
    offset: int
    at: datetime | None
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


def read_last(servers: KafkaServers, topic: str, bounds: Bounds, *, count: int) -> tuple[Message, ...]:
    """Return the newest `count` messages of these partitions, oldest first."""
    width, messages = count, list[Message]()
    with closing(_consumer(servers)) as consumer:
        for _ in range(_TRIES):
            starts = {partition: max(low, high - width) for partition, (low, high) in bounds.items()}
            ranges = {partition: (start, bounds[partition][1]) for partition, start in starts.items()}
            messages = _read(consumer, topic, ranges)
            if len(messages) >= count or all(starts[partition] == low for partition, (low, _) in bounds.items()):
                break
            width *= _WIDER
    return tuple(sorted(messages, key=_age)[-count:])


def read_from(servers: KafkaServers, topic: str, *, partition: int, offset: int, end: int, count: int) -> tuple[Message, ...]:
    """Return up to `count` messages of a partition from `offset` (included) to `end` (excluded)."""
    with closing(_consumer(servers)) as consumer:
        messages = _read(consumer, topic, {partition: (offset, end)}, enough=count)
    return tuple(messages[:count])


def _read(consumer: Consumer, topic: str, ranges: Mapping[int, tuple[int, int]], *, enough: int | None = None) -> list[Message]:
    """Return the messages of these ranges, or the first ones once there are `enough`. A range ends by position."""
    left = {partition: end for partition, (start, end) in ranges.items() if start < end}
    if not left:
        return []
    messages: list[Message] = []
    deadline = time.monotonic() + _READ_SECONDS
    try:
        consumer.assign([TopicPartition(topic, partition, ranges[partition][0]) for partition in left])
        while left and (enough is None or len(messages) < enough):
            if time.monotonic() > deadline:
                raise _unavailable(f"no answer in {_READ_SECONDS:.0f} s", topic)
            for message in consumer.consume(_AT_ONCE, 0.2):
                partition, offset = _place(message)
                if (end := left.get(partition)) is None:
                    continue
                if _is_end(message, topic) or offset >= end - 1:
                    del left[partition]
                if message.error() is None and offset < end:
                    messages.append(_message(message))
    except KafkaException as error:
        raise _unavailable(error.args[0].str() if error.args else str(error), topic) from error
    return messages


def _is_end(message: KafkaMessage, topic: str) -> bool:
    """Return whether this event is the end of a partition. Raise an UnavailableError for any other error."""
    error = message.error()
    if error is None:
        return False
    if error.code() == KafkaError._PARTITION_EOF:
        return True
    raise _unavailable(error.str(), topic)


def _consumer(servers: KafkaServers) -> Consumer:
    return Consumer(
        {
            **servers.client(),
            "group.id": "headrace-looks",  # required but unused: partitions are assigned, not subscribed to
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 50,
            "queued.max.messages.kbytes": 16_384,
        }
    )


def _place(message: KafkaMessage) -> tuple[int, int]:
    partition, offset = message.partition(), message.offset()
    return -1 if partition is None else partition, -1 if offset is None else offset


def _message(message: KafkaMessage) -> Message:
    kind, milliseconds = message.timestamp()
    at = None if kind == TIMESTAMP_NOT_AVAILABLE else datetime.fromtimestamp(milliseconds / 1000, timezone.utc)
    partition, offset = _place(message)
    headers: list[tuple[str, bytes | None]] = []
    for pair in message.headers() or ():
        headers.append((str(pair[0]), pair[1].encode() if isinstance(pair[1], str) else pair[1]))
    return Message(partition, offset, at, message.key(), message.value(), tuple(headers))


def _age(message: Message) -> tuple[float, int, int]:
    return (message.at.timestamp() if message.at else 0.0, message.partition, message.offset)


def _unavailable(reason: str, topic: str) -> UnavailableError:
    return UnavailableError(
        f"Kafka does not answer: {reason}", where=f"topic {topic}", next_step="Check that it runs: headrace doctor"
    )
