"""A topic of change events through Kafka and Spark while its table changes: the lake follows without a restart."""

from __future__ import annotations

from decimal import Decimal
from threading import Event
from typing import TYPE_CHECKING, Any

import pytest

from headrace.errors import UnavailableError
from headrace.kafka.client import KafkaServers
from headrace.landing.landed import Batch
from headrace.sessions.landing import Session, land
from headrace.spec import Pipeline
from tests.kafka.played_registry import play_registry
from tests.landing.envelopes import DOUBLE, INT, LONG, TEXT, Table, change, decimal
from tests.support.lake import Lake, check_verified
from tests.support.topics import make_topic, produce

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.services, pytest.mark.spark]

FIRST = Table({"id": INT, "total": decimal(10, 2), "note": TEXT})
GROWN = Table({"id": LONG, "total": decimal(12, 2), "note": TEXT, "email": TEXT})
OTHER = Table({"id": LONG, "total": decimal(12, 2), "note": TEXT, "weight": DOUBLE})
IMPOSSIBLE = Table({"id": LONG, "total": decimal(12, 4), "note": TEXT, "email": TEXT})
RENAMED = Table({"id": LONG, "total": decimal(12, 2), "remark": TEXT, "email": TEXT})


def write_pipeline(lake: Lake) -> Pipeline:
    folder = lake.folder / "pipelines" / "shop"
    (folder / "schemas").mkdir(parents=True)
    (folder / "schemas" / "orders.avsc").write_text(FIRST.avsc, encoding="utf-8")
    (folder / "pipeline.yml").write_text(
        "name: shop\nabout: a test\nstreams:\n  orders:\n"
        f"    topic: {lake.topic}\n    partitions: 2\n    format: debezium\n    schema: schemas/orders.avsc\n"
        "    table: raw.orders\n    event_time: {column: changed_at, from: ts_ms, unit: ms}\n"
        "    partition_by: [days(changed_at)]\n",
        encoding="utf-8",
    )
    return lake.pipeline("shop")


def test_table_that_changes_while_it_is_landed(lake: Lake, spark: SparkSession) -> None:
    make_topic(lake.servers, lake.topic, partitions=2)
    pipeline = write_pipeline(lake)
    with play_registry() as registry:
        for schema_id, table in enumerate((FIRST, GROWN, OTHER, IMPOSSIBLE, RENAMED), start=1):
            registry.add(schema_id, table.avsc)
        lander = lake.lander(pipeline, HEADRACE_REGISTRY_URL=registry.url)
        session = Session(lake.settings(), pipeline, KafkaServers(lake.servers), lander, spark)
        reports: list[str] = []
        sent = 0

        def send(*values: bytes | None) -> list[Batch]:
            """Send messages, and land them with the application that is already running."""
            nonlocal sent
            produce(lake.servers, lake.topic, [message for value in values for message in (value, value)], partitions=2)
            sent += 2 * len(values)
            batches: list[Batch] = []
            land(session, once=True, stop=Event(), landed=batches.append, report=reports.append)
            return batches

        def rows() -> list[Any]:
            """Return the rows of partition 0, in the order of their offsets."""
            landed = [row for row in lake.rows("raw.orders") if row["kafka_partition"] == 0]
            landed.sort(key=lambda row: row["kafka_offset"])
            return [None if row["after"] is None else {**row["after"], "op": row["op"]} for row in landed]

        order = {"id": 1, "total": Decimal("1.50"), "note": "first"}
        send(FIRST.framed(change(order), schema_id=1), None)
        assert rows() == [{**order, "op": "c"}, None]
        (tombstone, *_) = [row for row in lake.rows("raw.orders") if row["op"] is None]
        assert {name for name, value in tombstone.items() if value is not None} == {
            *("kafka_topic", "kafka_partition", "kafka_offset", "kafka_timestamp", "checkpoint_id")
        }

        # Two new schemas in one batch, one of them in JSON: the table gets the columns of both, and keeps older messages.
        two = {"id": 2**40, "total": Decimal("1234567890.50"), "note": None, "email": "a@b.c"}
        three = {"id": 3, "total": None, "note": "third", "weight": 0.5}
        batches = send(
            FIRST.framed(change(order, lsn=2), schema_id=1),
            GROWN.framed(change(two), schema_id=2),
            OTHER.wrapped(change(three, before=three)),
        )
        assert [len(batch.landed) for batch in batches] == [0, 1]
        nulls = {"email": None, "weight": None}
        wanted = [
            {**order, **nulls, "op": "c"},
            None,
            {**order, **nulls, "op": "c"},
            {**two, "weight": None, "op": "c"},
            {**three, "email": None, "op": "u"},
        ]
        assert rows() == wanted
        assert sorted(reports) == [
            f"raw.orders has a {what}"
            for what in (
                *("new column: after.email, string", "new column: after.weight, double"),
                *("new column: before.email, string", "new column: before.weight, double"),
                "wider column: after.id, int -> long",
                "wider column: after.total, decimal(10, 2) -> decimal(12, 2)",
                "wider column: before.id, int -> long",
                "wider column: before.total, decimal(10, 2) -> decimal(12, 2)",
            )
        ]
        reports.clear()

        # Messages that the table can't hold are quarantined with a reason; all others land, also those of old schemas.
        bad = IMPOSSIBLE.framed(change({"id": 4, "total": Decimal("1.2345"), "note": "n", "email": None}), schema_id=4)
        five = {"id": 5, "total": None, "remark": "renamed", "email": "e"}
        broken = FIRST.framed(change(order), schema_id=1)[:-4]
        values = [bad, broken, b"\x00\x00\x00\x00\x63abc", RENAMED.framed(change(five), schema_id=5)]
        produce(lake.servers, lake.topic, [message for value in values for message in (value, value)], partitions=2)
        sent += 2 * len(values)
        grown = lander.land_batch(spark.sparkContext)
        assert grown is not None
        assert (grown.landed, grown.behind) == ((), 8)
        # The application is killed right after the table has grown: the next one continues from there.
        lander = lake.lander(pipeline, HEADRACE_REGISTRY_URL=registry.url)
        session = Session(lake.settings(), pipeline, KafkaServers(lake.servers), lander, spark)
        send()
        assert rows() == [
            *({**row, "remark": None} if row else None for row in wanted),
            {**five, "note": None, "weight": None, "op": "c"},
        ]
        reason = "schema does not fit: of schema 4, `before.total` is decimal(12, 4), and the table has decimal(12, 2)"
        quarantined = [row for row in lake.quarantine("shop.orders") if row["partition"] == 0]
        assert [row["original_bytes"] for row in quarantined] == [bad, broken, b"\x00\x00\x00\x00\x63abc"]
        assert quarantined[0]["reason"].startswith(reason)
        assert quarantined[1]["reason"].startswith("truncated Avro")
        assert quarantined[2]["reason"] == "unknown schema: the registry has no schema 99"
        assert any(line.startswith(f"shop.orders: messages go to the quarantine: {reason}") for line in reports)

        # During an outage of the registry, landing retries: no message is refused or lost.
        registry.add(6, FIRST.avsc)
        registry.status = 503
        produce(lake.servers, lake.topic, [FIRST.framed(change(order), schema_id=6)] * 2, partitions=2)
        with pytest.raises(UnavailableError, match="registry"):
            lander.land_batch(spark.sparkContext)
        registry.status = 200
        send()
        sent += 2
        assert len(rows()) == 7
    check_verified(lake, pipeline)
    (verified,) = lake.verify(pipeline)
    assert (verified.in_topic, verified.landed, verified.quarantined) == (sent, 14, 6)
