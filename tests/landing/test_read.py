"""Step 2: ranges are read to their ends, whatever is between, and a reader can be used again after anything."""

from __future__ import annotations

from random import Random
from threading import Thread

import pytest
from confluent_kafka import KafkaException

from headrace.errors import UnavailableError
from headrace.landing import read
from headrace.landing.batch import Messages, Range
from headrace.landing.read import RangeReader
from headrace.services.topics import list_bounds
from tests.lake import Lake
from tests.topics import delete_records, make_topic, produce, producer_of
from tests.waiting import wait_until

pytestmark = pytest.mark.services


@pytest.fixture(autouse=True)
def _little_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read, "_PATIENCE_SECONDS", 5.0)


def reader_for(servers: str) -> RangeReader:
    return RangeReader((("bootstrap.servers", servers),))


def read_all(reader: RangeReader, *ranges: Range, chunk_rows: int = 1000) -> list[Messages]:
    return list(reader.read(ranges, chunk_rows=dict.fromkeys({part.topic for part in ranges}, chunk_rows)))


def offsets(chunks: list[Messages], partition: int = 0) -> list[int]:
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


def test_any_cuts_give_each_message_once(lake: Lake) -> None:
    make_topic(lake.servers, lake.topic, partitions=3)
    sent = produce(lake.servers, lake.topic, values(3000), partitions=3)
    reader, random = reader_for(lake.servers), Random(5)
    at, found = [0, 0, 0], []
    while min(at) < 1000:
        ends = [min(1000, start + random.choice([0, 1, 7, 100, 400])) for start in at]
        parts = [Range(lake.topic, number, start, end) for number, (start, end) in enumerate(zip(at, ends, strict=True))]
        for chunk in read_all(reader, *parts, chunk_rows=50):
            found += list(zip(chunk.partitions, chunk.offsets, chunk.values, strict=True))
        at = ends
    assert sorted(found) == sorted((one.partition, one.offset, one.value) for one in sent)


def test_a_range_that_is_cut_is_read_to_its_end_and_not_further(lake: Lake) -> None:
    make_topic(lake.servers, lake.topic)
    produce(lake.servers, lake.topic, values(100))
    reader = reader_for(lake.servers)
    assert offsets(read_all(reader, Range(lake.topic, 0, 10, 20))) == list(range(10, 20))
    assert offsets(read_all(reader, Range(lake.topic, 0, 20, 21))) == [20]
    assert offsets(read_all(reader, Range(lake.topic, 0, 5, 8))) == [5, 6, 7], "it can go back"
    assert offsets(read_all(reader, Range(lake.topic, 0, 90, 100))) == list(range(90, 100))


def test_messages_come_in_chunks(lake: Lake) -> None:
    make_topic(lake.servers, lake.topic)
    produce(lake.servers, lake.topic, [b"x" * 900_000] * 100)
    chunks = read_all(reader_for(lake.servers), Range(lake.topic, 0, 0, 100), chunk_rows=10_000)
    assert max(chunk.bytes for chunk in chunks) < 60_000_000, "memory does not grow with the range"
    assert sum(chunk.bytes for chunk in chunks) == 90_000_000
    produce(lake.servers, lake.topic, values(5000))
    sizes = [len(chunk) for chunk in read_all(reader_for(lake.servers), Range(lake.topic, 0, 100, 5100), chunk_rows=500)]
    assert max(sizes) <= 1500
    assert sum(sizes) == 5000


def test_a_range_that_is_given_up_half_way(lake: Lake) -> None:
    make_topic(lake.servers, lake.topic, partitions=2)
    produce(lake.servers, lake.topic, values(4000), partitions=2)
    reader = reader_for(lake.servers)
    parts = [Range(lake.topic, 0, 0, 2000), Range(lake.topic, 1, 0, 2000)]
    some = reader.read(parts, chunk_rows={lake.topic: 100})
    assert len(next(some)) >= 100
    some.close()  # type: ignore[attr-defined]
    again = read_all(reader, *parts)
    assert offsets(again, 0) == list(range(2000))
    assert offsets(again, 1) == list(range(2000))


def test_only_committed_messages_are_read(lake: Lake) -> None:
    admin = make_topic(lake.servers, lake.topic)
    transaction(lake, "a", values(5, "a"), commit=True)
    transaction(lake, "b", values(5, "b"), commit=False)
    transaction(lake, "c", values(5, "c"), commit=True)
    transaction(lake, "d", values(5, "d"), commit=False)
    ((_, high),) = list_bounds(admin, [(lake.topic, 0)]).values()
    assert high == 24, "20 messages and 4 markers"
    reader = reader_for(lake.servers)
    chunks = read_all(reader, Range(lake.topic, 0, 0, high))
    assert [value for chunk in chunks for value in chunk.values] == [*values(5, "a"), *values(5, "c")]
    for start, end, count in ((5, 12, 0), (17, 24, 0), (4, 13, 2), (23, 24, 0), (6, 7, 0)):
        assert len(offsets(read_all(reader, Range(lake.topic, 0, start, end)))) == count, (start, end)


def test_an_open_transaction_is_waited_for_by_nobody(lake: Lake) -> None:
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


def test_an_end_that_was_passed_while_another_partition_was_read(lake: Lake) -> None:
    """Partition 0 is finished, moves on by an aborted transaction, and then has nothing more to say."""
    make_topic(lake.servers, lake.topic, partitions=2)
    produce(lake.servers, lake.topic, values(10))
    reader = reader_for(lake.servers)
    found: list[Messages] = []
    parts = (Range(lake.topic, 0, 0, 10), Range(lake.topic, 1, 0, 1))
    thread = Thread(target=lambda: found.extend(read_all(reader, *parts)))
    thread.start()
    transaction(lake, "aborted", values(1), commit=False)

    def is_passed() -> bool:
        return any(message.error() and message.offset() == 12 for message in reader._early.get((lake.topic, 0), []))

    wait_until(is_passed, what="the end of partition 0 at offset 12, kept for the next range", seconds=4)
    produce(lake.servers, lake.topic, [b"a", b"b"], partitions=2)
    thread.join(10)
    assert offsets(found, 0) == list(range(10))
    assert offsets(read_all(reader, Range(lake.topic, 0, 10, 12))) == []


def test_offsets_that_are_gone_are_an_error_and_not_skipped(lake: Lake) -> None:
    admin = make_topic(lake.servers, lake.topic)
    produce(lake.servers, lake.topic, values(10))
    delete_records(admin, lake.topic, {0: 5})
    with pytest.raises(KafkaException):
        read_all(reader_for(lake.servers), Range(lake.topic, 0, 0, 10))


def test_a_range_that_never_comes_is_an_error(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read, "_PATIENCE_SECONDS", 0.5)
    make_topic(lake.servers, lake.topic)
    with pytest.raises(UnavailableError, match="Kafka gave no message"):
        read_all(reader_for(lake.servers), Range(lake.topic, 0, 0, 1))
