"""Read topics of a real Kafka without leaving traces."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from confluent_kafka import Producer

from headrace.app.topics import open_topics, read_all_bounds
from headrace.errors import NotFoundError
from headrace.kafka.client import KafkaServers
from headrace.kafka.topics import admin_client
from headrace.serving.web.topics import Wanted
from headrace.settings import load_settings
from tests.cli.conftest import Here
from tests.kafka.played_registry import play_registry
from tests.serving.changes import ENVELOPE, UPDATE, registered
from tests.serving.shop_lake import ShopLake
from tests.support.topics import lineage_values, make_topic, produce

pytestmark = pytest.mark.services

TOPIC = "looked-at"


def produce_in_transactions(servers: str, topic: str) -> None:
    """Send six messages in separate transactions, of which every second one is aborted."""
    producer = Producer({"bootstrap.servers": servers, "transactional.id": "looked-at", "log_level": 0})
    producer.init_transactions(20)
    for number in range(6):
        producer.begin_transaction()
        producer.produce(topic, b"%d" % number, partition=0)
        producer.flush(20)
        if number % 2:
            producer.abort_transaction(20)
        else:
            producer.commit_transaction(20)


def test_messages_of_a_real_topic(tmp_path: Path, broker: str) -> None:
    admin = make_topic(broker, TOPIC, partitions=2)
    produce(broker, TOPIC, [b"a0", b"b0", b"a1", b"b1", b"a2"], partitions=2, keys=[b"k"] * 5)
    subject = f"/subjects/{TOPIC}-value/versions"
    registry = {
        "/schemas/ids/7": {"schema": json.dumps(ENVELOPE)},
        subject: [1],
        f"{subject}/1": {"version": 1, "id": 7, "schema": json.dumps(ENVELOPE)},
    }
    with play_registry(registry) as played:
        environ = {"KAFKA_BOOTSTRAP_SERVERS": broker, "HEADRACE_REGISTRY_URL": played.url}
        desk = open_topics(load_settings(flags={}, environ=environ, folder=tmp_path), [])
        assert [message.value.text for message in desk.messages(TOPIC, Wanted(2, partition=0))] == ["a1", "a2"]
        assert len(desk.messages(TOPIC, Wanted(4))) == 4
        assert [message.value.text for message in desk.messages(TOPIC, Wanted(1, partition=1, offset=0))] == ["b0"]
        assert desk.messages(TOPIC, Wanted(1))[0].key.text == "k"
        assert TOPIC in [status.name for status in desk.all()]
        assert not any(status.name.startswith("__") for status in desk.all())
        for wrong, message in (
            (Wanted(partition=2), "partition not found: 2"),
            (Wanted(partition=0, offset=3), "offset not found: 3"),
            (Wanted(offset=0), "requires a partition"),
        ):
            with pytest.raises(NotFoundError, match=message):
                desk.messages(TOPIC, wrong)
        with pytest.raises(NotFoundError, match='topic not found: "looked-att"'):
            desk.one("looked-att")
        produce(broker, TOPIC, [registered(7, ENVELOPE, UPDATE)])
        newest = desk.messages(TOPIC, Wanted(1, partition=0))[0].value
        assert (newest.form, newest.about.split(" · ")[0]) == ("avro", "update of public.customers")
        assert [schema.origin for schema in desk.schemas(TOPIC).schemas] == [f"registry: {TOPIC}-value, version 1, id 7"]
    groups = admin.list_consumer_groups().result()
    assert "headrace-looks" not in [group.group_id for group in groups.valid]


def test_messages_skip_aborted_transactions(tmp_path: Path, broker: str) -> None:
    topic = f"{TOPIC}-in-transactions"
    make_topic(broker, topic)
    produce_in_transactions(broker, topic)
    settings = load_settings(flags={}, environ={"KAFKA_BOOTSTRAP_SERVERS": broker}, folder=tmp_path)
    desk = open_topics(settings, [])
    assert desk.one(topic).messages == 12, "six messages and six markers"
    assert [message.value.text for message in desk.messages(topic, Wanted(2))] == ["2", "4"], (
        "it looks further back than two offsets"
    )
    assert [message.value.text for message in desk.messages(topic, Wanted(5))] == ["0", "2", "4"]
    assert [message.value.text for message in desk.messages(topic, Wanted(1, partition=0, offset=1))] == ["2"]


def test_lag_is_per_partition(tmp_path: Path, broker: str) -> None:
    lake = ShopLake(tmp_path, environ={"KAFKA_BOOTSTRAP_SERVERS": broker})
    topic = lake.pipeline.streams[0].topic
    if topic not in {name for name, _ in read_all_bounds(admin_client(KafkaServers(broker)))}:
        make_topic(broker, topic)
    before = open_topics(lake.settings, [lake.pipeline]).one(topic).messages
    produce(broker, topic, [b'{"id":"a"}'] * 3)
    lake.land([f"row {number}" for number in range(before + 1)])
    status = open_topics(lake.settings, [lake.pipeline]).one(topic)
    assert (status.lag, status.partitions[0].lags) == (2, {"shop.charges": 2})
    assert status.readers[0].table == "raw.charges"


def test_topics_shows_topics_and_messages(here: Here, broker: str, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = f"{TOPIC}-by-lineage"
    make_topic(broker, topic)
    produce(broker, topic, [*lineage_values(2, seed=1), b"not avro", None])
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", broker)
    monkeypatch.setenv("KAFKA_TOPIC", topic)
    code, output = here("topics")
    assert code == 0
    assert "lineage.events" in output
    code, output = here("topics", topic)
    assert code == 0, output
    for part in (
        "lineage.events lag",
        "lineage.events, avro",
        '"uuid": "',
        "not avro",
        "a tombstone",
        "truncated Avro: the message ends before its last field (read with the stream's schema)",
    ):
        assert part in output
    code, output = here("topics", topic, "--json", "--last", "2", "--partition", "0", "--offset", "1")
    shown = json.loads(output)
    assert (shown["lag"], [message["offset"] for message in shown["messages"]]) == (4, [1, 2])
    assert shown["messages"][0]["value"]["content"].keys() == {"uuid", "timestamp"}
    assert shown["messages"][1]["value"]["bytes"] == "bm90IGF2cm8="
    assert here("topics", "nothing-like-it")[0] == 1
    assert here("topics", "--partition", "0")[0] == 2
