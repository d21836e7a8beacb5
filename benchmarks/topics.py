"""Fills topics, once for both sides."""

from __future__ import annotations

from collections.abc import Iterable

from confluent_kafka import Producer

from headrace.kafka.client import KafkaServers
from headrace.kafka.topics import admin_client, ensure_topics

_IN_FLIGHT = 100_000
_POLL_EVERY = 2_000


def fill_topic(bootstrap_servers: str, topic: str, values: Iterable[bytes], *, partitions: int) -> None:
    """Send the values to the partitions in turn. The topic must not exist yet."""
    ensure_topics(admin_client(KafkaServers(bootstrap_servers)), {topic: partitions})
    producer = new_producer(bootstrap_servers, {"linger.ms": "50", "batch.size": "1000000"})
    for index, value in enumerate(values):
        producer.produce(topic, value, partition=index % partitions)
        if index % _POLL_EVERY == 0:
            while len(producer) > _IN_FLIGHT:
                producer.poll(0.05)
    if producer.flush(120):
        raise RuntimeError(f"Kafka did not take all messages for {topic}")


def new_producer(bootstrap_servers: str, settings: dict[str, str]) -> Producer:
    return Producer(
        {"bootstrap.servers": bootstrap_servers, "queue.buffering.max.messages": "1000000", "log_level": "0", **settings}
    )
