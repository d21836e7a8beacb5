"""Freshness: from the moment an event is produced to the moment a committed snapshot has it, as fast as each side can.

500 events a second in all go to 1 topic or to 8. Headrace lands them in one application with one loop, plain Spark in one
application with as many streaming queries, each without a pause between batches.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path

from benchmarks.bench import Bench
from benchmarks.competitor import Competitor
from benchmarks.events import charges
from benchmarks.results import Bar, at_least, at_most
from benchmarks.side import Order, SideName
from benchmarks.topics import new_producer
from benchmarks.watch import Sightings, read_ages, watch_catalog
from headrace.kafka.client import KafkaServers
from headrace.kafka.topics import admin_client, ensure_topics

RATE = 500
TOPIC_COUNTS = (1, 8)
PARTITIONS = 2
_WARM_UP_SECONDS = 20
_SECONDS = 40
_DRAIN_SECONDS = 60.0


@dataclass(frozen=True)
class Freshness:
    """How old events were when they became visible."""

    side: SideName
    topics: int
    events: int
    median_seconds: float
    p99_seconds: float
    snapshots_per_second: float


def compare_freshness(bench: Bench) -> tuple[tuple[Freshness, ...], tuple[Bar, ...]]:
    measured = [measure_freshness(bench, side, topics=count) for count in TOPIC_COUNTS for side in _sides()]
    by = {(measurement.side, measurement.topics): measurement.median_seconds for measurement in measured}
    bars = (
        at_most(1.2, by["headrace", 1] / by["plain", 1], name="1 topic: median age against one plain Spark sink"),
        at_least(3.0, by["plain", 8] / by["headrace", 8], name="8 topics: times fresher than eight plain Spark sinks"),
    )
    return tuple(measured), bars


def measure_freshness(bench: Bench, side: SideName, *, topics: int) -> Freshness:
    """Return the ages of the events that were produced after the warm-up."""
    tables = {f"fresh-{side}-{topics}-{number}": f"fresh_{number}" for number in range(topics)}
    ensure_topics(admin_client(KafkaServers(bench.bootstrap_servers)), dict.fromkeys(tables, PARTITIONS))
    warm_up, seconds = (_WARM_UP_SECONDS // 2, _SECONDS // 4) if bench.quick else (_WARM_UP_SECONDS, _SECONDS)
    with bench.start(side) as competitor:
        database = Path(competitor.start.settings.catalog_uri.removeprefix("sqlite:///"))
        with watch_catalog(database) as sightings:
            competitor.follow(Order("charges", tables, PARTITIONS, follow=True))
            _wait_for_tables(sightings, list(tables.values()))
            started = time.time()
            sent = _produce(bench.bootstrap_servers, list(tables), seconds=warm_up + seconds)
            _wait_for_rows(competitor, list(tables.values()), sent)
        competitor.end_following()
        ages = [age for name in tables.values() for age in read_ages(competitor.table(name), sightings, name=name)]
    if len(ages) != sent:
        raise RuntimeError(f"{side} landed {len(ages)} events of {sent}")
    counted = sorted(age for produced, age in ages if produced >= started + warm_up)
    commits = sum(
        1 for seen in sightings.seen.values() for _, moment in seen if started + warm_up <= moment < started + warm_up + seconds
    )
    result = Freshness(
        side,
        topics,
        len(counted),
        round(_quantile(counted, 0.5), 3),
        round(_quantile(counted, 0.99), 3),
        round(commits / seconds / topics, 2),
    )
    bench.say(f"Freshness: {side}, {topics} topic(s), median {result.median_seconds:.2f} s, p99 {result.p99_seconds:.2f} s")
    return result


def _produce(bootstrap_servers: str, topics: list[str], *, seconds: int) -> int:
    """Send the topics their events in turn, at a steady rate, and return how many."""
    producer = new_producer(bootstrap_servers, {})
    targets: Iterator[tuple[int, str]] = cycle([(partition, topic) for partition in range(PARTITIONS) for topic in topics])
    started = time.monotonic()
    count = RATE * seconds
    for index, (value, (partition, topic)) in enumerate(zip(charges(count, seed=7), targets, strict=False)):
        wait = started + index / RATE - time.monotonic()
        if wait > 0:
            time.sleep(wait)
        producer.produce(topic, value, partition=partition)
        producer.poll(0)
    if producer.flush(30):
        raise RuntimeError("Kafka did not take all events")
    return count


def _wait_for_tables(sightings: Sightings, names: list[str]) -> None:
    deadline = time.monotonic() + _DRAIN_SECONDS
    while not all(sightings.seen.get(name) for name in names):
        if time.monotonic() > deadline:
            raise RuntimeError("the side made no tables")
        time.sleep(0.1)


def _wait_for_rows(competitor: Competitor, names: list[str], wanted: int) -> None:
    deadline = time.monotonic() + _DRAIN_SECONDS
    while sum(competitor.count(name) for name in names) < wanted:
        competitor.check()
        if time.monotonic() > deadline:
            raise RuntimeError(f"{competitor.start.side} did not land all {wanted} events")
        time.sleep(0.5)


def _sides() -> tuple[SideName, ...]:
    return ("headrace", "plain")


def _quantile(ordered: list[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]
