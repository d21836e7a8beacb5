"""Generators: the same seed gives the same bytes, at any rate and count."""

from __future__ import annotations

import time
from dataclasses import replace
from itertools import islice
from threading import Event, Thread

import pytest

from headrace.errors import SpecError, UnavailableError
from headrace.kafka.client import KafkaServers
from headrace.kafka.records import split_messages
from headrace.kafka.topics import admin_client, list_bounds
from headrace.landing.batch import Range
from headrace.landing.read import RangeReader
from headrace.sources.encode import encoder_of
from headrace.sources.generate import FIRST_MOMENT, Rate, events_of, generate
from headrace.spec import load_pipeline
from headrace.spec.loading.folders import BUILT_IN
from tests.support.lake import Lake
from tests.support.topics import make_topic
from tests.support.waiting import wait_until

LINEAGE = load_pipeline("lineage", environ={}, folder=BUILT_IN).streams[0]


def first(count: int, rate: Rate) -> list[bytes]:
    return list(map(encoder_of(LINEAGE), islice(events_of(LINEAGE, rate), count)))


def test_seed_fixes_every_byte() -> None:
    assert first(200, Rate(seed=7)) == first(200, Rate(seed=7))
    assert first(200, Rate(seed=7)) != first(200, Rate(seed=8))
    assert first(5, Rate()) != first(5, Rate())


def test_seeded_clock_moves_with_the_rate() -> None:
    start = int(FIRST_MOMENT.timestamp() * 1000)
    for per_second, step in ((10.0, 100), (None, 100), (500.0, 2)):
        moments = [event["timestamp"] for event in islice(events_of(LINEAGE, Rate(per_second=per_second, seed=1)), 3)]
        assert moments == [start + step, start + 2 * step, start + 3 * step]


def messages(lake: Lake, topic: str) -> list[tuple[int, int, bytes | None]]:
    bounds = list_bounds(admin_client(KafkaServers(lake.servers)), [(topic, partition) for partition in range(10)])
    ranges = [Range(topic, partition, low, high) for (_, partition), (low, high) in bounds.items()]
    messages_in_order: list[tuple[int, int, bytes | None]] = []
    for chunk in RangeReader((("bootstrap.servers", lake.servers),)).read(ranges):
        for part in split_messages(chunk, rows=1000):
            places = part.places.to_pydict()
            messages_in_order += zip(places["partition"], places["offset"], part.values, strict=True)
    return sorted(messages_in_order)


@pytest.mark.services
def test_generate_with_a_seed_sends_the_same_messages(lake: Lake) -> None:
    topics = [f"{lake.topic}-{number}" for number in range(2)]
    for topic in topics:
        output = lake.command("generate", "lineage.events", "--count", "105", "--seed", "7", "--rate", "0", KAFKA_TOPIC=topic)
        assert "105 events are acknowledged by Kafka" in output
    one, two = (messages(lake, topic) for topic in topics)
    assert one == two
    assert len(one) == 105
    wanted = first(105, Rate(per_second=None, seed=7))
    assert [value for partition, offset, value in one if partition == 3] == wanted[3::10]


@pytest.mark.services
def test_generate_keeps_its_rate_and_stops(lake: Lake) -> None:
    make_topic(lake.servers, lake.topic, partitions=10)
    (stream,) = lake.pipeline().streams
    started = time.monotonic()
    assert generate(stream, Rate(per_second=100.0, count=50), bootstrap_servers=KafkaServers(lake.servers), stop=Event()) == 50
    assert time.monotonic() - started >= 0.49
    stop = Event()
    sent: list[int] = []

    def endless() -> None:
        sent.append(generate(stream, Rate(per_second=1000.0), bootstrap_servers=KafkaServers(lake.servers), stop=stop))

    thread = Thread(target=endless)
    thread.start()
    wait_until(lambda: len(messages(lake, lake.topic)) > 100, what="events")
    stop.set()
    thread.join(60)
    assert len(messages(lake, lake.topic)) == 50 + sent[0]


def test_generate_requires_a_generator() -> None:
    with pytest.raises(SpecError, match="has no generator"):
        events_of(replace(LINEAGE, generator=None), Rate())


@pytest.mark.services
def test_generate_fails_on_a_topic_with_fewer_partitions(lake: Lake) -> None:
    make_topic(lake.servers, lake.topic, partitions=2)
    (stream,) = lake.pipeline().streams
    with pytest.raises(UnavailableError, match=lake.topic):
        generate(stream, Rate(per_second=None, count=20), bootstrap_servers=KafkaServers(lake.servers), stop=Event())
