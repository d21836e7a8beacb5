"""Step 2, read: the messages of some ranges, from Kafka, in chunks.

The consumer lives as long as the Python worker that holds it. It keeps its partitions between batches, so that what the next
batch will ask for is often already here.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from headrace.errors import UnavailableError
from headrace.landing.batch import Messages, Range

CHUNK_BYTES = 8 * 1024 * 1024
_CONSUME_ROWS = 1_000
_WAIT_SECONDS = 0.05
_EARLY_ROWS = 2_000
_PATIENCE_SECONDS = 60.0
_PASSING = (KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT, KafkaError._RESOLVE, KafkaError._TIMED_OUT)
_Key = tuple[str, int]

_READER = {
    "group.id": "headrace",
    "enable.auto.commit": "false",
    "enable.auto.offset.store": "false",
    "auto.offset.reset": "error",
    "enable.partition.eof": "true",
    "isolation.level": "read_committed",
    "check.crcs": "true",
    "fetch.wait.max.ms": "20",
    "fetch.error.backoff.ms": "5",
    "fetch.queue.backoff.ms": "5",
    "queued.max.messages.kbytes": "4096",
    "fetch.message.max.bytes": "1048576",
    "message.max.bytes": "67108864",
    "receive.message.max.bytes": "134217728",
    "fetch.max.bytes": "67108864",
    "log_level": "0",
}


class RangeReader:
    """A consumer that reads ranges. A range ends by position, so gaps and transaction markers never hang it."""

    def __init__(self, consumer: tuple[tuple[str, str], ...]) -> None:
        self._consumer = Consumer({**_READER, **dict(consumer)})
        self._positions: dict[_Key, int] = {}
        self._early: dict[_Key, list[Message]] = {}

    def read(self, ranges: Sequence[Range], *, chunk_rows: Mapping[str, int]) -> Iterator[Messages]:
        """Yields the ranges' messages, each topic's in chunks of about its `chunk_rows`, or of CHUNK_BYTES.

        A range that is given up half-way leaves the reader usable: the next read seeks.
        """
        wanted = {(part.topic, part.partition): part for part in ranges if part.size > 0}
        ends = {key: part.end for key, part in wanted.items()}
        left = {key: part.size for key, part in wanted.items()}
        chunks = {part.topic: Messages.empty(part.topic) for part in ranges}
        messages = self._assign(wanted)
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while ends:
            # Asked for more than there is, the consumer would wait for it; gaps in the offsets are what the time-out is for.
            most = min(_CONSUME_ROWS, sum(left[key] for key in ends))
            messages = messages or self._consumer.consume(most, timeout=_WAIT_SECONDS)
            if messages:
                deadline = time.monotonic() + _PATIENCE_SECONDS
            elif time.monotonic() > deadline:
                raise UnavailableError(
                    f"Kafka gave no message for {_PATIENCE_SECONDS:.0f} s",
                    where=", ".join(f"{topic}[{partition}]" for topic, partition in sorted(ends)),
                    next_step="Check that the broker answers: headrace status",
                )
            if len(chunks) > 1 or not self._take_all(messages, ends, left, next(iter(chunks.values()))):
                for message in messages:
                    self._take(message, ends, left, chunks)
            messages = []
            for topic, chunk in chunks.items():
                if len(chunk) >= chunk_rows[topic] or chunk.bytes >= CHUNK_BYTES:
                    yield chunk
                    chunks[topic] = Messages.empty(topic)
        yield from (chunk for chunk in chunks.values() if len(chunk))

    def _take_all(self, messages: list[Message], ends: dict[_Key, int], left: dict[_Key, int], chunk: Messages) -> bool:
        """Takes messages of one topic that are all inside their ranges; says False, and takes none, if any is not."""
        if any(message.error() is not None for message in messages):
            return False
        partitions: list[int] = [message.partition() for message in messages]  # type: ignore[misc]
        offsets: list[int] = [message.offset() for message in messages]  # type: ignore[misc]
        # A partition's messages come in order, so the last of each is enough to know that none is past its end.
        lasts = dict(zip(partitions, offsets, strict=True))
        if any(last >= ends.get((chunk.topic, partition), 0) - 1 for partition, last in lasts.items()):
            return False
        for partition, last in lasts.items():
            left[chunk.topic, partition] = ends[chunk.topic, partition] - last - 1
        values = [message.value() for message in messages]
        chunk.values += values
        chunk.partitions += partitions
        chunk.offsets += offsets
        chunk.timestamps += [message.timestamp()[1] for message in messages]
        chunk.bytes += sum(map(len, filter(None, values)))
        return True

    def _take(self, message: Message, ends: dict[_Key, int], left: dict[_Key, int], chunks: dict[str, Messages]) -> None:
        topic, partition, offset = message.topic() or "", message.partition() or 0, message.offset() or 0
        key = (topic, partition)
        error = message.error()
        if error is not None:
            if error.code() == KafkaError._PARTITION_EOF:
                if key not in ends:
                    self._early.setdefault(key, []).append(message)  # it comes once, and the next range may end by it
                elif offset >= ends[key]:
                    self._positions[key] = ends.pop(key)
            elif not error.retriable() and error.code() not in _PASSING:
                raise KafkaException(error)
            return
        end = ends.get(key)
        if end is None or offset >= end:
            if end is not None:
                self._positions[key] = ends.pop(key)
            self._keep_for_next(key, message)
            return
        chunk = chunks[topic]
        value = message.value()
        chunk.values.append(value)
        chunk.partitions.append(partition)
        chunk.offsets.append(offset)
        chunk.timestamps.append(message.timestamp()[1])
        chunk.bytes += len(value) if value else 0
        left[key] = end - offset - 1
        if not left[key]:
            self._positions[key] = ends.pop(key)

    def _keep_for_next(self, key: _Key, message: Message) -> None:
        """Keeps a message past the end of its range; a partition that runs far ahead of the others is let go of."""
        if key not in self._positions:
            return
        early = self._early.setdefault(key, [])
        early.append(message)
        if len(early) > _EARLY_ROWS:
            self._consumer.incremental_unassign([TopicPartition(*key)])
            del self._positions[key], self._early[key]

    def _assign(self, wanted: dict[_Key, Range]) -> list[Message]:
        """Points the consumer at the ranges' starts; gives back their messages that an earlier batch was handed too early."""
        held = {key for key, position in self._positions.items() if key in wanted and wanted[key].start == position}
        gone = [key for key in self._positions if key not in held]
        if gone:
            self._consumer.incremental_unassign([TopicPartition(*key) for key in gone])
        fresh = [key for key in wanted if key not in held]
        early = [message for key in held for message in self._early.get(key, [])]
        self._early = {}
        for key in gone:
            del self._positions[key]
        if fresh:
            self._consumer.incremental_assign([TopicPartition(*key, wanted[key].start) for key in fresh])
        # Until its range is read to the end, a partition's position is unknown: a failure on the way must lead to a seek.
        self._positions.update(dict.fromkeys(wanted, -1))
        return early


@lru_cache(maxsize=4)
def reader_of_this_worker(consumer: tuple[tuple[str, str], ...]) -> RangeReader:
    """Gives back the reader that this process keeps for its whole life."""
    return RangeReader(consumer)
