"""A topic that was deleted and created again under the same name: no message is skipped or landed twice."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from headrace.errors import TopicResetError, UnavailableError
from headrace.iceberg.ledgers.landing import KEY, Ledger, offsets_label, read_ledger
from headrace.kafka.topics import TopicIdentity
from headrace.landing.plan import Bounds
from headrace.landing.replaced_topics import accept, adopt, check_topic, is_replaced
from headrace.landing.topic_choice import ReplacedTopic
from tests.support.lake import Lake, send_lineage
from tests.support.topics import TRUNCATED, lineage_values, make_topic, produce, replace_topic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EVENTS = "lineage.events"
LANDED = Ledger(checkpoint_id=4, offsets={0: 10}, topic_id="a", cluster_id="one")


@pytest.mark.parametrize(
    "identity",
    [
        TopicIdentity("a", "one"),
        TopicIdentity("a", "two"),  # the same topic id is proof
        TopicIdentity("", "one"),  # a broker that reports no topic ids
        TopicIdentity("a", ""),
        TopicIdentity("", ""),
    ],
)
def test_check_topic_accepts_the_topic_that_was_landed(identity: TopicIdentity) -> None:
    check_topic("t", LANDED, identity)


@pytest.mark.parametrize(
    ("identity", "reason"),
    [
        (TopicIdentity("b", "one"), "its id is b, but the rows were landed from the topic with id a"),
        (TopicIdentity("b", "two"), "its id is b"),
        (TopicIdentity("", "two"), "its id is two, but the rows were landed from cluster one"),
        (None, "the topic no longer exists"),
    ],
)
def test_check_topic_refuses_another_topic(identity: TopicIdentity | None, reason: str) -> None:
    with pytest.raises(TopicResetError, match=reason) as raised:
        check_topic("t", LANDED, identity)
    for way_out in ("--replaced-topic restart", "--replaced-topic continue", "KAFKA_BOOTSTRAP_SERVERS"):
        assert way_out in raised.value.next_step


def test_check_topic_accepts_a_ledger_without_ids_or_offsets() -> None:
    check_topic("t", Ledger(offsets={0: 10}), TopicIdentity("b", "two"))
    check_topic("t", Ledger(offsets={0: 10}), None)
    check_topic("t", replace(LANDED, offsets={0: 0}), TopicIdentity("b", "two"))


def test_adopt_keeps_an_id_that_the_broker_does_not_report() -> None:
    assert adopt(Ledger(offsets={0: 10}), TopicIdentity("b", "two")).topic_id == "b"
    adopted = adopt(LANDED, TopicIdentity("", "one"))
    assert (adopted.topic_id, adopted.cluster_id) == ("a", "one")


def test_is_replaced_notices_a_shorter_topic_without_ids() -> None:
    assert is_replaced("t", Ledger(offsets={0: 10}), TopicIdentity(), {0: Bounds(0, 9)})
    assert not is_replaced("t", Ledger(offsets={0: 10}), TopicIdentity(), {0: Bounds(0, 10)})


def test_accept_starts_over_or_continues() -> None:
    bounds = {0: Bounds(2, 9), 1: Bounds(0, 3)}
    fresh = accept(LANDED, TopicIdentity("b", "two"), bounds, ReplacedTopic.RESTART)
    assert (dict(fresh.offsets), fresh.topic_starts, fresh.first_checkpoint) == ({0: 2, 1: 0}, (5,), 5)
    same = accept(LANDED, TopicIdentity("b", "two"), bounds, ReplacedTopic.CONTINUE)
    assert (dict(same.offsets), same.topic_starts, same.first_checkpoint) == ({0: 10}, (), 0)
    assert {fresh.topic_id, same.topic_id} == {"b"}


def test_offsets_label_tells_topics_of_one_stream_apart() -> None:
    assert [offsets_label("p.s", start) for start in (0, 5, 9)] == ["p.s", "p.s@5", "p.s@9"]


@pytest.mark.services
@pytest.mark.spark
def test_replaced_topic_stops_landing_and_verify(lake: Lake, spark: SparkSession) -> None:
    admin = make_topic(lake.servers, lake.topic)
    send_lineage(lake, 30, seed=1, bad_every=10)
    lake.land(spark)
    ledger = read_ledger(lake.table(EVENTS))
    assert ledger.topic_id
    assert ledger.cluster_id
    replace_topic(admin, lake.topic)
    values = lineage_values(50, seed=2, bad_every=10)
    produce(lake.servers, lake.topic, values)
    with pytest.raises(TopicResetError, match=f"landed from the topic with id {ledger.topic_id.replace('+', '[+]')}"):
        lake.land(spark)
    with pytest.raises(TopicResetError, match="deleted and created again"):
        lake.verify()
    with pytest.raises(TopicResetError, match="deleted and created again"):
        lake.land(spark, accept_gaps=True)
    assert len(lake.rows(EVENTS)) == 27

    lake.land(spark, replaced_topic=ReplacedTopic.RESTART)
    bad = [value for value in values if value is not None and len(value) <= TRUNCATED]
    assert len(bad) == 5
    assert len(lake.rows(EVENTS)) == 27 + 45, "the rows of both topics are there"
    assert len(lake.quarantine(EVENTS)) == 3 + 5, "also the bad ones at offsets that were in the quarantine already"
    (verified,) = lake.verify()
    assert (verified.in_topic, verified.landed, verified.quarantined, verified.earlier) == (50, 45, 5, 30)
    assert (verified.missing, verified.doubled, verified.waiting) == (0, 0, 0)
    assert lake.land(spark, replaced_topic=ReplacedTopic.RESTART) == [], "the choice holds for the topic that was replaced"
    send_lineage(lake, 10, seed=3)
    lake.land(spark)
    assert len(lake.rows(EVENTS)) == 27 + 45 + 9


@pytest.mark.services
@pytest.mark.spark
def test_restored_topic_continues(lake: Lake, spark: SparkSession) -> None:
    admin = make_topic(lake.servers, lake.topic)
    values = lineage_values(20, seed=1)
    produce(lake.servers, lake.topic, values[:10])
    lake.land(spark)
    replace_topic(admin, lake.topic)
    produce(lake.servers, lake.topic, values)
    said = lake.command("land", "lineage", "--once", "--replaced-topic", "continue", spark=spark)
    assert "lineage.events: new topic accepted (continue) and recorded" in said
    assert sorted(row["kafka_offset"] for row in lake.rows(EVENTS, "kafka_offset")) == list(range(20))
    (verified,) = lake.verify()
    assert (verified.landed, verified.missing, verified.doubled, verified.earlier) == (20, 0, 0, 0)


@pytest.mark.services
@pytest.mark.spark
def test_old_ledger_adopts_the_topic_with_its_next_checkpoint(lake: Lake, spark: SparkSession) -> None:
    make_topic(lake.servers, lake.topic)
    produce(lake.servers, lake.topic, lineage_values(5, seed=1))
    lake.land(spark)
    table = lake.table(EVENTS)
    with table.transaction() as transaction:
        transaction.set_properties({KEY: replace(read_ledger(table), topic_id="", cluster_id="").to_json()})
    assert lake.verify()[0].missing == 0
    produce(lake.servers, lake.topic, lineage_values(5, seed=2))
    lake.land(spark)
    assert read_ledger(lake.table(EVENTS)).topic_id


@pytest.mark.services
@pytest.mark.spark
def test_topic_replaced_during_a_read_is_not_committed(
    lake: Lake, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    admin = make_topic(lake.servers, lake.topic)
    produce(lake.servers, lake.topic, lineage_values(10, seed=1))
    lander = lake.lander()
    lander.land_batch(spark.sparkContext)
    produce(lake.servers, lake.topic, lineage_values(10, seed=2))
    run = lander._run

    def run_on_another_topic(*arguments: Any) -> Any:
        replace_topic(admin, lake.topic)
        produce(lake.servers, lake.topic, lineage_values(30, seed=3))
        return run(*arguments)

    monkeypatch.setattr(lander, "_run", run_on_another_topic)
    with pytest.raises(UnavailableError, match="deleted while Headrace read its messages"):
        lander.land_batch(spark.sparkContext)
    assert len(lake.rows(EVENTS)) == 10
    assert lander.land_batch(spark.sparkContext) is None
    assert isinstance(lander.stopped[EVENTS], TopicResetError)
