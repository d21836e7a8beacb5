"""Step 2: ranges are read to their ends, whatever is in between, and the reader stays usable after any error."""

from __future__ import annotations

import gc
import socket
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

import pytest

from headrace.errors import UnavailableError
from headrace.kafka.client import BATCHES, CLIENT, READER
from headrace.kafka.records import FetchClient, Records, UnknownProtocolError, split_messages
from headrace.kafka.records import client as fetch_client
from headrace.kafka.topics import list_bounds
from headrace.landing import read
from headrace.landing.batch import Range
from headrace.landing.read import RangeReader
from tests.support.lake import Lake
from tests.support.topics import delete_records, make_topic, produce, producer_of
from tests.support.waiting import wait_until

pytestmark = pytest.mark.services


@pytest.fixture(autouse=True)
def _little_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read, "_SILENCE_SECONDS", 30.0)


ReaderFor = Callable[[str], RangeReader]


@dataclass(frozen=True)
class Chunk:
    """The content of one chunk of the reader."""

    size: int
    values: list[bytes | None]
    partitions: list[int]
    offsets: list[int]


@pytest.fixture(params=[BATCHES, CLIENT])
def reader_for(request: pytest.FixtureRequest) -> ReaderFor:
    """Return a function that opens either reader."""
    return lambda servers: RangeReader((("bootstrap.servers", servers), (READER, request.param)))


def read_all(reader: RangeReader, *ranges: Range) -> list[Chunk]:
    return [chunk_of(records) for records in reader.read(ranges)]


def chunk_of(records: Records) -> Chunk:
    (messages,) = split_messages(records, rows=1_000_000)
    places = messages.places.to_pydict()
    return Chunk(records.bytes, messages.values, places["partition"], places["offset"])


def offsets(chunks: list[Chunk], partition: int = 0) -> list[int]:
    return [at for chunk in chunks for number, at in zip(chunk.partitions, chunk.offsets, strict=True) if number == partition]


def values(count: int, prefix: str = "v") -> list[bytes | None]:
    return [f"{prefix}{number}".encode() for number in range(count)]


def transaction(lake: Lake, name: str, messages: list[bytes | None], *, commit: bool) -> None:
    producer = producer_of(lake.servers, **{"transactional.id": f"{lake.topic}-{name}"})
    producer.init_transactions(30)
    producer.begin_transaction()
    produce(lake.servers, lake.topic, messages, producer=producer)
    if commit:
        producer.commit_transaction(30)
    else:
        producer.abort_transaction(30)


def test_reader_returns_each_message_once_for_any_ranges(lake: Lake, reader_for: ReaderFor) -> None:
    make_topic(lake.servers, lake.topic, partitions=3)
    sent = produce(lake.servers, lake.topic, values(3000), partitions=3)
    reader, random = reader_for(lake.servers), Random(5)
    at, messages = [0, 0, 0], []
    while min(at) < 1000:
        ends = [min(1000, start + random.choice([0, 1, 7, 100, 400])) for start in at]
        parts = [Range(lake.topic, number, start, end) for number, (start, end) in enumerate(zip(at, ends, strict=True))]
        for chunk in read_all(reader, *parts):
            messages += list(zip(chunk.partitions, chunk.offsets, chunk.values, strict=True))
        at = ends
    assert sorted(messages) == sorted((one.partition, one.offset, one.value) for one in sent)


def test_reader_stops_at_the_end_of_a_range(lake: Lake, reader_for: ReaderFor) -> None:
    make_topic(lake.servers, lake.topic)
    produce(lake.servers, lake.topic, values(100))
    reader = reader_for(lake.servers)
    assert offsets(read_all(reader, Range(lake.topic, 0, 10, 20))) == list(range(10, 20))
    assert offsets(read_all(reader, Range(lake.topic, 0, 20, 21))) == [20]
    assert offsets(read_all(reader, Range(lake.topic, 0, 5, 8))) == [5, 6, 7], "it can go back"
    assert offsets(read_all(reader, Range(lake.topic, 0, 90, 100))) == list(range(90, 100))


def test_reader_yields_chunks(lake: Lake, reader_for: ReaderFor) -> None:
    make_topic(lake.servers, lake.topic)
    produce(lake.servers, lake.topic, [b"x" * 900_000] * 100)
    chunks = read_all(reader_for(lake.servers), Range(lake.topic, 0, 0, 100))
    assert max(chunk.size for chunk in chunks) < 6_000_000, "memory does not grow with the range"
    assert offsets(chunks) == list(range(100))
    produce(lake.servers, lake.topic, values(5000))
    assert len(read_all(reader_for(lake.servers), Range(lake.topic, 0, 100, 5100))) == 1, "a few messages are one chunk"


def test_reader_reads_messages_larger_than_a_fetch(lake: Lake, reader_for: ReaderFor) -> None:
    make_topic(lake.servers, lake.topic, partitions=2, config={"max.message.bytes": "10000000"})
    sent = produce(lake.servers, lake.topic, [b"a", b"b", b"x" * 5_000_000, b"y" * 9_000_000, b"c", b"d"], partitions=2)
    chunks = read_all(reader_for(lake.servers), Range(lake.topic, 0, 0, 3), Range(lake.topic, 1, 0, 3))
    messages = [row for chunk in chunks for row in zip(chunk.partitions, chunk.offsets, chunk.values, strict=True)]
    assert sorted(messages) == sorted((one.partition, one.offset, one.value) for one in sent)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_reader_decompresses_messages(lake: Lake, codec: str, reader_for: ReaderFor) -> None:
    make_topic(lake.servers, lake.topic)
    sent = values(2000)
    produce(lake.servers, lake.topic, sent, producer=producer_of(lake.servers, **{"compression.type": codec}))
    chunks = read_all(reader_for(lake.servers), Range(lake.topic, 0, 300, 1700))
    assert [value for chunk in chunks for value in chunk.values] == sent[300:1700]


def test_reader_reads_keys_headers_and_tombstones(lake: Lake, reader_for: ReaderFor) -> None:
    make_topic(lake.servers, lake.topic)
    producer = producer_of(lake.servers)
    sent: list[bytes | None] = [b"first", None, b"", b"x" * 300, b"last"]
    for number, value in enumerate(sent):
        headers: list[tuple[str, str | bytes | None]] = [("name", b"v" * number)] if number % 2 else []
        producer.produce(lake.topic, value, b"key" if number > 1 else None, partition=0, headers=headers)
    assert producer.flush(30) == 0
    (chunk,) = read_all(reader_for(lake.servers), Range(lake.topic, 0, 0, 5))
    assert chunk.values == sent


def test_reader_reads_many_topics_together(lake: Lake, reader_for: ReaderFor) -> None:
    topics = [f"{lake.topic}-{number}" for number in range(3)]
    for topic in topics:
        make_topic(lake.servers, topic, partitions=50)
        produce(lake.servers, topic, values(500, topic), partitions=50)
    parts = [Range(topic, partition, 0, 10) for topic in topics for partition in range(50)]
    chunks = list(reader_for(lake.servers).read(parts))
    assert sorted(chunk.topic for chunk in chunks) == topics
    for chunk in chunks:
        assert sorted(chunk_of(chunk).values) == sorted(values(500, chunk.topic))  # type: ignore[type-var]


def test_reader_stays_usable_after_an_abandoned_range(lake: Lake, reader_for: ReaderFor) -> None:
    make_topic(lake.servers, lake.topic, partitions=2)
    produce(lake.servers, lake.topic, [b"x" * 6_000] * 4000, partitions=2)
    reader = reader_for(lake.servers)
    parts = [Range(lake.topic, 0, 0, 2000), Range(lake.topic, 1, 0, 2000)]
    for _ in range(3):
        some = reader.read(parts)
        assert next(some).batches
        del some
        gc.collect()
    again = read_all(reader, *parts)
    assert offsets(again, 0) == list(range(2000))
    assert offsets(again, 1) == list(range(2000))


def test_reader_reads_only_committed_messages(lake: Lake, reader_for: ReaderFor) -> None:
    admin = make_topic(lake.servers, lake.topic)
    transaction(lake, "a", values(5, "a"), commit=True)
    transaction(lake, "b", values(5, "b"), commit=False)
    transaction(lake, "c", values(5, "c"), commit=True)
    transaction(lake, "d", values(5, "d"), commit=False)
    high = 24  # 20 messages and 4 markers, of which the last may take a moment
    wait_until(lambda: list_bounds(admin, [(lake.topic, 0)]) == {(lake.topic, 0): (0, high)}, what="the last marker")
    reader = reader_for(lake.servers)
    chunks = read_all(reader, Range(lake.topic, 0, 0, high))
    assert [value for chunk in chunks for value in chunk.values] == [*values(5, "a"), *values(5, "c")]
    for start, end, count in ((5, 12, 0), (17, 24, 0), (4, 13, 2), (23, 24, 0), (6, 7, 0)):
        assert len(offsets(read_all(reader, Range(lake.topic, 0, start, end)))) == count, (start, end)


def test_reader_does_not_wait_for_an_open_transaction(lake: Lake, reader_for: ReaderFor) -> None:
    admin = make_topic(lake.servers, lake.topic)
    transaction(lake, "a", values(3), commit=True)
    producer = producer_of(lake.servers, **{"transactional.id": f"{lake.topic}-open"})
    producer.init_transactions(30)
    producer.begin_transaction()
    produce(lake.servers, lake.topic, values(3), producer=producer)
    assert list_bounds(admin, [(lake.topic, 0)]) == {(lake.topic, 0): (0, 4)}
    reader = reader_for(lake.servers)
    assert offsets(read_all(reader, Range(lake.topic, 0, 0, 4))) == [0, 1, 2]
    producer.commit_transaction(30)
    wait_until(lambda: list_bounds(admin, [(lake.topic, 0)]) == {(lake.topic, 0): (0, 8)}, what="the transaction's end")
    assert offsets(read_all(reader, Range(lake.topic, 0, 4, 8))) == [4, 5, 6]


def test_reader_raises_on_deleted_offsets(lake: Lake, reader_for: ReaderFor) -> None:
    admin = make_topic(lake.servers, lake.topic)
    produce(lake.servers, lake.topic, values(10))
    delete_records(admin, lake.topic, {0: 5})
    with pytest.raises(UnavailableError, match="OffsetOutOfRange"):
        read_all(reader_for(lake.servers), Range(lake.topic, 0, 0, 10))


def test_reader_reconnects_after_a_lost_connection(lake: Lake) -> None:
    make_topic(lake.servers, lake.topic)
    produce(lake.servers, lake.topic, [b"x" * 6_000] * 4000)
    reader = RangeReader((("bootstrap.servers", lake.servers), (READER, BATCHES)))
    assert isinstance(reader._client, FetchClient)
    chunks = reader.read([Range(lake.topic, 0, 0, 4000)])
    received = [chunk_of(next(chunks))]
    for connection in reader._client._connections.values():
        connection._socket.shutdown(socket.SHUT_RDWR)
    received += [chunk_of(records) for records in chunks]
    assert offsets(received) == list(range(4000))


def test_reader_raises_after_a_long_outage(monkeypatch: pytest.MonkeyPatch, reader_for: ReaderFor) -> None:
    monkeypatch.setattr(read, "_SILENCE_SECONDS", 0.3)
    with pytest.raises(UnavailableError, match="Kafka returned no messages"):
        read_all(reader_for("127.0.0.1:1"), Range("things", 0, 0, 1))


def test_reader_raises_if_a_range_never_arrives(lake: Lake, monkeypatch: pytest.MonkeyPatch, reader_for: ReaderFor) -> None:
    monkeypatch.setattr(read, "_SILENCE_SECONDS", 0.5)
    make_topic(lake.servers, lake.topic)
    with pytest.raises(UnavailableError, match="Kafka returned no messages"):
        read_all(reader_for(lake.servers), Range(lake.topic, 0, 0, 1))


@pytest.mark.parametrize("kind", ["CreateTime", "LogAppendTime"])
def test_readers_return_the_same_times(lake: Lake, kind: str) -> None:
    make_topic(lake.servers, lake.topic, config={"message.timestamp.type": kind})
    producer = producer_of(lake.servers)
    for number in (5, 3, 900, 0):
        producer.produce(lake.topic, b"v", partition=0, timestamp=1_700_000_000_000 + number)
    assert producer.flush(30) == 0
    both = []
    for name in (BATCHES, CLIENT):
        (records,) = RangeReader((("bootstrap.servers", lake.servers), (READER, name))).read([Range(lake.topic, 0, 0, 4)])
        (messages,) = split_messages(records, rows=10)
        both.append(messages.places.to_pylist())
    assert both[0] == both[1]
    if kind == "CreateTime":
        assert [place["timestamp"] - 1_700_000_000_000 for place in both[0]] == [5, 3, 900, 0]


def test_reader_falls_back_to_librdkafka_on_an_unknown_protocol(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    make_topic(lake.servers, lake.topic)
    produce(lake.servers, lake.topic, values(10))
    monkeypatch.setattr(fetch_client, "_FETCH_VERSION", 99)
    reader = RangeReader((("bootstrap.servers", lake.servers),))
    assert offsets(read_all(reader, Range(lake.topic, 0, 2, 7))) == [2, 3, 4, 5, 6]
    pinned = RangeReader((("bootstrap.servers", lake.servers), (READER, BATCHES)))
    with pytest.raises(
        UnknownProtocolError, match=r"takes FetchRequest in versions \d+ to \d+, and .* sends version 99"
    ) as raised:
        read_all(pinned, Range(lake.topic, 0, 2, 7))
    assert raised.value.next_step == "Set kafka.reader to auto or client."
