"""Topics for tests: made, filled, and known message by message."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any
from uuid import UUID

from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from headrace.kafka.client import KafkaServers
from headrace.kafka.topics import admin_client, list_topic_ids
from headrace.sources.encode import encoder_of
from headrace.spec import load_pipeline
from headrace.spec.loading.folders import BUILT_IN
from tests.support.waiting import wait_until

FIRST_MOMENT = 1_771_963_198_501
HOUR = 3_600_000
TRUNCATED = 20
"""The bytes that are left of a truncated event."""


@dataclass(frozen=True)
class Sent:
    """A message as Kafka has it."""

    partition: int
    offset: int
    value: bytes | None


def make_topic(servers: str, topic: str, *, partitions: int = 1, config: Mapping[str, str] | None = None) -> AdminClient:
    """Make a topic, and return a client for more."""
    admin = admin_client(KafkaServers(servers))
    for created in admin.create_topics([NewTopic(topic, partitions, 1, config=dict(config or {}))]).values():
        created.result(20)
    return admin


def replace_topic(admin: AdminClient, topic: str, *, partitions: int = 1) -> None:
    """Delete a topic and create it again under the same name, and wait until the broker reports the new one."""
    before = list_topic_ids(admin, [topic])
    for deleted in admin.delete_topics([topic]).values():
        deleted.result(20)
    wait_until(lambda: not list_topic_ids(admin, [topic]), what="the topic to be deleted")
    for created in admin.create_topics([NewTopic(topic, partitions, 1)]).values():
        created.result(20)
    wait_until(lambda: list_topic_ids(admin, [topic]) not in ({}, before), what="the new topic")


def producer_of(servers: str, **settings: Any) -> Producer:
    return Producer({"bootstrap.servers": servers, "log_level": 0, "message.max.bytes": 10_000_000, "linger.ms": 5, **settings})


def produce(
    servers: str,
    topic: str,
    values: Iterable[bytes | None],
    *,
    partitions: int = 1,
    first: int = 0,
    keys: Sequence[bytes] | None = None,
    producer: Producer | None = None,
) -> list[Sent]:
    """Send value `i` to partition `i` modulo `partitions`, and return what Kafka acknowledged, which is everything.

    Values are counted from `first`, so that a second call continues the first.
    """
    producer = producer or producer_of(servers)
    sent: list[Sent] = []
    failed: list[str] = []

    def acknowledged(error: Any, message: Any) -> None:
        if error is not None:
            failed.append(str(error))
        else:
            sent.append(Sent(message.partition(), message.offset(), message.value()))

    count = 0
    for index, value in enumerate(values):
        key = keys[index] if keys else None
        producer.produce(topic, value, key, partition=(first + index) % partitions, on_delivery=acknowledged)
        count = index + 1
        if count % 10_000 == 0:
            producer.poll(0)
    assert producer.flush(60) == 0
    assert not failed, failed[0]
    assert len(sent) == count
    return sent


def delete_records(admin: AdminClient, topic: str, before: Mapping[int, int]) -> None:
    """Has Kafka delete what is below an offset, by partition."""
    wanted = [TopicPartition(topic, partition, offset) for partition, offset in before.items()]
    for deleted in admin.delete_records(wanted).values():
        deleted.result(20)


def lineage_events(count: int, *, seed: int, hours: int = 3) -> list[dict[str, object]]:
    """Return events of the lineage pipeline, spread over some hours."""
    random = Random(seed)
    return [
        {
            "uuid": str(UUID(int=random.getrandbits(128), version=4)),
            "timestamp": FIRST_MOMENT + random.randrange(hours) * HOUR + index,
        }
        for index in range(count)
    ]


def lineage_values(count: int, *, seed: int, bad_every: int = 0, hours: int = 3) -> list[bytes | None]:
    """Return encoded events; every `bad_every`th is truncated."""
    (stream,) = load_pipeline("lineage", environ={}, folder=BUILT_IN).streams
    encode = encoder_of(stream)
    values = [encode(event) for event in lineage_events(count, seed=seed, hours=hours)]
    return [value[:TRUNCATED] if bad_every and index % bad_every == 7 else value for index, value in enumerate(values)]
