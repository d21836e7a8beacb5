"""A Kafka client that reads with librdkafka, for brokers whose protocol the record-batch reader does not know.

Messages become record batches again, without keys and headers, which landing does not read: everything after the fetch is
the same code. Making an object of every message is what the record-batch reader saves.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Consumer, KafkaError, KafkaException, Message, TopicPartition

from headrace.kafka.records.batches import Position, RecordBatch
from headrace.kafka.records.fetched import KafkaUnavailableError
from headrace.kafka.records.security import refused

_AT_ONCE = 10_000
_POLL_SECONDS = 0.1
_NO_TIME = -1
_NO_KEY = _NO_VALUE = b"\x01"  # -1 in zigzag
_BATCH_BYTES = 256 * 1024
_Key = tuple[str, int]


@dataclass
class _Batch:
    """Messages that are encoded as the records of a batch: their offsets and times are relative to those of the first."""

    first: int
    time: int
    last: int = 0
    count: int = 0
    records: bytearray = field(default_factory=bytearray)

    def add(self, offset: int, time: int, value: bytes | None) -> None:
        shown = _NO_VALUE if value is None else _number(len(value)) + value
        record = b"".join((b"\x00", _number(time - self.time), _number(offset - self.first), _NO_KEY, shown, b"\x00"))
        self.records += _number(len(record)) + record
        self.last, self.count = offset, self.count + 1


@dataclass
class Consumed:
    """Messages of one partition, and the offset after the last one or after what follows it."""

    topic: str
    partition: int
    next: int
    refusal: str = ""
    _batches: list[_Batch] = field(default_factory=list)

    def next_offset(self, position: Position) -> int:
        """Return the offset after the last message, or the position's own without one."""
        return max(self.next, position.next)

    def batches(self, position: Position) -> Iterator[RecordBatch]:
        """Yield the messages as batches, whose wanted ones are those of the range."""
        for batch in self._batches:
            if batch.first < position.end:
                yield RecordBatch(
                    partition=self.partition,
                    base_offset=batch.first,
                    last_offset=batch.last,
                    timestamp=batch.time,
                    one_time=False,
                    count=batch.count,
                    records=memoryview(batch.records),
                    start=position.next,
                    end=position.end,
                )

    def add(self, message: Message) -> None:
        offset, (kind, time) = _offset(message), message.timestamp()
        time = _NO_TIME if kind == TIMESTAMP_NOT_AVAILABLE else time
        if not self._batches or len(self._batches[-1].records) > _BATCH_BYTES:
            self._batches.append(_Batch(offset, time))
        self._batches[-1].add(offset, time, message.value())
        self.next = offset + 1


class ConsumerClient:
    """Read partitions with a consumer that is assigned to them, and that keeps its connections between ranges."""

    def __init__(self, settings: tuple[tuple[str, str], ...]) -> None:
        self._settings = dict(settings)
        self._consumer: Consumer | None = None
        self._next: dict[_Key, int] = {}
        self._refusal = ""

    def ask(self, positions: Iterable[Position]) -> None:
        """Read on at these positions; partitions that are not among them are read no more."""
        wanted = {(at.topic, at.partition): at.next for at in positions}
        moved = [key for key, offset in self._next.items() if wanted.get(key) != offset]
        if moved:
            self._open().incremental_unassign([TopicPartition(*key) for key in moved])
            for key in moved:
                del self._next[key]
        new = {key: offset for key, offset in wanted.items() if key not in self._next}
        if new:
            self._open().incremental_assign([TopicPartition(*key, offset) for key, offset in new.items()])
            self._next |= new

    def answer(self) -> Sequence[Consumed]:
        """Return what arrives next; nothing after a moment without messages.

        Raises an UnavailableError if the login is refused.
        """
        parts: dict[_Key, Consumed] = {}
        try:
            first = self._open().poll(_POLL_SECONDS)
            # `consume` waits for all of them or its timeout, so it takes only what has already arrived.
            messages = [] if first is None else [first, *self._open().consume(_AT_ONCE, 0)]
        except KafkaException as failure:
            raise KafkaUnavailableError(str(failure)) from failure
        if self._refusal:
            reason, self._refusal = self._refusal, ""
            self.reset()
            raise refused(reason)
        for message in messages:
            key = (message.topic() or "", -1 if (number := message.partition()) is None else number)
            if key not in self._next:
                continue
            part = parts.setdefault(key, Consumed(*key, self._next[key]))
            error = message.error()
            if error is None:
                part.add(message)
            elif error.code() == KafkaError._PARTITION_EOF:
                part.next = max(part.next, _offset(message))  # transaction markers and compacted offsets have no messages
            elif error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
                part.refusal = "OffsetOutOfRangeError"
            elif not error.retriable():
                part.refusal = str(error.name())
        for key, part in parts.items():
            self._next[key] = part.next
        return [*parts.values()]

    def reset(self) -> None:
        """Start again from the bootstrap servers."""
        if self._consumer is not None:
            self._consumer.close()
        self._consumer, self._next = None, {}

    def give_up(self) -> None:
        """Read no partition any more."""
        if self._consumer is not None and self._next:
            self._consumer.unassign()
        self._next = {}

    def _note(self, error: KafkaError) -> None:
        """Keep the reason of a refused login; librdkafka retries all other errors."""
        if error.code() in (KafkaError._AUTHENTICATION, KafkaError._SSL):
            self._refusal = error.str()

    def _open(self) -> Consumer:
        if self._consumer is None:
            self._consumer = Consumer(
                {
                    **self._settings,
                    "error_cb": self._note,
                    "log_level": 0,
                    "group.id": "headrace-lands",  # required but unused: partitions are assigned, not subscribed to
                    "enable.auto.commit": False,
                    "enable.auto.offset.store": False,
                    "enable.partition.eof": True,
                    "isolation.level": "read_committed",
                    "auto.offset.reset": "error",
                    "check.crcs": True,
                    "fetch.wait.max.ms": 20,
                    # With the defaults of 1,000 and 500, the first message of a range took half a second.
                    "fetch.queue.backoff.ms": 5,
                    "fetch.error.backoff.ms": 20,
                    "queued.max.messages.kbytes": 16_384,
                }
            )
        return self._consumer


def _offset(message: Message) -> int:
    offset = message.offset()
    return -1 if offset is None else offset


def _number(value: int) -> bytes:
    """Return a number as Kafka writes it: zigzag, seven bits per byte."""
    rest = (value << 1) ^ (value >> 63)
    if rest < 0x80:
        return _BYTES[rest]
    encoded = bytearray()
    while rest >= 0x80:
        encoded.append(rest & 0x7F | 0x80)
        rest >>= 7
    encoded.append(rest)
    return bytes(encoded)


_BYTES = tuple(bytes((number,)) for number in range(0x80))
