"""Topics with holes: compacted, with aborted transactions, and with offsets that Kafka has deleted."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from headrace.iceberg.ledgers.landing import read_ledger
from headrace.kafka.client import KafkaServers
from headrace.kafka.records import split_messages
from headrace.kafka.topics import admin_client, list_bounds
from headrace.landing.batch import Range
from headrace.landing.read import RangeReader
from tests.support.lake import Lake, check_exactly_once, send_lineage
from tests.support.topics import Sent, delete_records, lineage_events, lineage_values, make_topic, produce, producer_of
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.services, pytest.mark.spark]
Good = dict[tuple[int, int], dict[str, object]]


def read_offsets(lake: Lake) -> set[int]:
    """Return the offsets of partition 0 that Kafka still has."""
    ((low, high),) = list_bounds(admin_client(KafkaServers(lake.servers)), [(lake.topic, 0)]).values()
    reader = RangeReader((("bootstrap.servers", lake.servers),))
    chunks = reader.read([Range(lake.topic, 0, low, high)])
    return {
        at for chunk in chunks for messages in split_messages(chunk, rows=1000) for at in messages.places["offset"].to_pylist()
    }


def test_compacted_topic(lake: Lake, spark: SparkSession) -> None:
    config = {
        "cleanup.policy": "compact",
        "segment.ms": "100",
        "min.cleanable.dirty.ratio": "0.01",
        "delete.retention.ms": "60000",
    }
    admin = make_topic(lake.servers, lake.topic, config=config)
    quick = ConfigEntry("log.cleaner.backoff.ms", "100", incremental_operation=AlterConfigOpType.SET)
    for done in admin.incremental_alter_configs(
        [ConfigResource(ResourceType.BROKER, "1", incremental_configs=[quick])]
    ).values():
        done.result(20)
    keys = [f"key-{number % 10}".encode() for number in range(200)]
    first = produce(lake.servers, lake.topic, lineage_values(200, seed=1), keys=keys)
    lake.land(spark)
    landed = {row["kafka_offset"] for row in lake.rows("lineage.events", "kafka_offset")}
    values: list[bytes | None] = [*lineage_values(195, seed=2), None, None, None, None, None]
    second = produce(lake.servers, lake.topic, values, keys=keys)

    def is_compacted() -> bool:
        produce(lake.servers, lake.topic, lineage_values(1, seed=3), keys=[b"roll"])  # a new message closes the old segment
        return len(read_offsets(lake)) < 250

    wait_until(is_compacted, what="Kafka to compact the topic", seconds=60)
    lake.land(spark)
    there = read_offsets(lake)
    held = {row["kafka_offset"] for row in lake.rows("lineage.events", "kafka_offset")}
    assert there - landed
    assert there <= held | {row["offset"] for row in lake.quarantine("lineage.events")}
    assert landed <= held, "what Kafka forgets stays in the table"
    assert {row["reason"] for row in lake.quarantine("lineage.events")} <= {"empty value"}
    ((_, high),) = list_bounds(admin, [(lake.topic, 0)]).values()
    assert dict(read_ledger(lake.table("lineage.events")).offsets) == {0: high}
    (verified,) = lake.verify()
    assert (verified.missing, verified.doubled, verified.unlogged, verified.waiting) == (0, 0, 0, 0)
    assert len(first) + len(second) > len(held), "there were holes to read over"


def send_transaction(lake: Lake, count: int, *, seed: int, commit: bool) -> tuple[list[Sent], Good]:
    producer = producer_of(lake.servers, **{"transactional.id": f"{lake.topic}-{seed}"})
    producer.init_transactions(30)
    producer.begin_transaction()
    sent = produce(lake.servers, lake.topic, lineage_values(count, seed=seed), partitions=3, producer=producer)
    if not commit:
        producer.abort_transaction(30)
        return [], {}
    producer.commit_transaction(30)
    events = dict(zip(lineage_values(count, seed=seed), lineage_events(count, seed=seed), strict=True))
    return sent, {(one.partition, one.offset): events[one.value] for one in sent}


def test_landing_skips_aborted_transactions(lake: Lake, spark: SparkSession) -> None:
    make_topic(lake.servers, lake.topic, partitions=3)
    sent: list[Sent] = []
    good: Good = {}
    for seed, commit in enumerate([True, False, True, False, False]):
        some, events = send_transaction(lake, 60, seed=seed, commit=commit)
        sent, good = sent + some, good | events
        if seed in (0, 3):
            assert lake.land(spark)
    (batch,) = lake.land(spark)
    assert batch.landed[0].rows == 0, "only aborted messages and markers were left"
    assert lake.land(spark) == []
    some, events = send_transaction(lake, 60, seed=9, commit=True)
    lake.land(spark, HEADRACE_BATCH_MAX_RECORDS="20")
    check_exactly_once(lake, sent + some, good=good | events)


def test_offsets_that_kafka_has_deleted(lake: Lake, spark: SparkSession) -> None:
    admin = make_topic(lake.servers, lake.topic)
    sent, good = send_lineage(lake, 100, seed=1)
    lake.land(spark)
    more, more_good = send_lineage(lake, 100, seed=2)
    delete_records(admin, lake.topic, {0: 150})
    code, said = lake.try_command("land", "lineage", "--once", spark=spark)
    assert code == 1
    assert "Kafka has deleted offsets 100 to 149 of partition 0 before they were landed" in said
    assert "--accept-gaps" in said
    assert "offsets 100 to 149" in lake.command("land", "lineage", "--once", "--accept-gaps", spark=spark)
    assert "offsets 100 to 149 of partition 0 were missing" in lake.command("status", "lineage")
    left = {at: event for at, event in more_good.items() if at[1] >= 150}
    check_exactly_once(lake, sent + [one for one in more if one.offset >= 150], good=good | left)
