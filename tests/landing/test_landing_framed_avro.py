"""Framed and plain Avro through Kafka and Spark into one table."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from headrace.kafka.client import KafkaServers
from headrace.operations.replay.choice import ReplayRequest
from headrace.operations.replay.replaying import ReplaySession, replay
from headrace.sessions.building import open_lake
from tests.kafka.played_registry import play_registry
from tests.landing.test_framed_avro import READER, V1, V2, encode, frame
from tests.support.lake import Lake, check_verified
from tests.support.topics import make_topic, produce

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.services, pytest.mark.spark]


def test_framed_and_plain_messages_land_in_one_table(lake: Lake, spark: SparkSession) -> None:
    make_topic(lake.servers, lake.topic, partitions=1)
    folder = lake.folder / "pipelines" / "shop"
    (folder / "schemas").mkdir(parents=True)
    (folder / "schemas" / "orders.avsc").write_text(READER, encoding="utf-8")
    (folder / "pipeline.yml").write_text(
        f"name: shop\nabout: a test\nstreams:\n  orders:\n    topic: {lake.topic}\n    format: avro\n"
        "    schema: schemas/orders.avsc\n    table: raw.orders\n",
        encoding="utf-8",
    )
    pipeline = lake.pipeline("shop")
    plain = encode(READER, {"id": "p", "amount": 1.5, "note": None, "currency": "USD"})
    framed = [
        frame(1, encode(V1, {"id": "a", "total": 5})),
        frame(2, encode(V2, {"id": "b", "total": 0.25, "note": "n", "added": 9})),
    ]
    produce(lake.servers, lake.topic, [framed[0], plain], partitions=1)
    assert lake.lander(pipeline).land_batch(spark.sparkContext) is not None
    (refused,) = lake.rows("metadata.quarantine")
    assert refused["reason"].startswith("no registry: the message is Confluent-framed (schema 1), and no schema registry")
    with play_registry() as registry:
        for schema_id, avsc in enumerate((V1, V2), start=1):
            registry.add(schema_id, avsc)
        produce(lake.servers, lake.topic, [*framed, plain], partitions=1)
        assert lake.lander(pipeline, HEADRACE_REGISTRY_URL=registry.url).land_batch(spark.sparkContext) is not None
        # Messages that were refused without a registry are replayed, as their reason says.
        opened = open_lake(lake.settings(HEADRACE_REGISTRY_URL=registry.url), pipeline, spark)
        replay(
            ReplaySession(opened, KafkaServers(lake.servers)), ReplayRequest(quarantined=True), dry_run=False, retry_policy=None
        )
    assert lake.rows("metadata.quarantine") == []
    rows = sorted(lake.rows("raw.orders"), key=lambda row: row["kafka_offset"])
    assert [(row["id"], row["amount"], row["note"], row["currency"]) for row in rows] == [
        ("a", 5.0, None, "EUR"),
        ("p", 1.5, None, "USD"),
        ("a", 5.0, None, "EUR"),
        ("b", 0.25, "n", "EUR"),
        ("p", 1.5, None, "USD"),
    ]
    check_verified(lake, pipeline)
