"""A lake that version 0.1 made is opened, continued and verified, and none of its tables is built again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timezone
from typing import TYPE_CHECKING

import pytest

from headrace.app.figures import list_layer_tables, list_streams
from headrace.build.definition import definition_of
from headrace.build.legacy_definition import legacy_digest
from headrace.iceberg.ledgers.build import read_build
from headrace.landing.topic_choice import ReplacedTopic
from headrace.sessions.building import Outcome, build, open_lake, plan
from headrace.spec.model.layers import BUILD_ID
from headrace.spec.model.pipeline import Pipeline
from tests.support.lake import Lake
from tests.support.topics import make_topic, produce
from tests.upgrade.kept_events import TOPIC, message_rounds
from tests.upgrade.old_lake import ROUNDS, unpacked_lake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KINDS = {"append", "upsert", "history", "aggregate", "features", "entities", "full"}


@pytest.fixture
def old_lake() -> Iterator[Lake]:
    """The lake of version 0.1, without a broker."""
    with unpacked_lake() as folder:
        yield Lake(folder, "", TOPIC)


def rows_of(lake: Lake, pipeline: Pipeline) -> dict[str, Counter[str]]:
    """Return the rows of every built table, without the build that wrote them."""
    tables = {str(table.table): lake.table(str(table.table)).scan().to_arrow() for table in pipeline.tables}
    return {
        name: Counter(repr(sorted(row.items())) for row in rows.drop_columns([BUILD_ID]).to_pylist())
        for name, rows in tables.items()
    }


def build_all(lake: Lake, spark: SparkSession, *, full_refresh: bool = False) -> tuple[Outcome, ...]:
    outcomes = build(open_lake(lake.settings(), lake.pipeline("kept"), spark), full_refresh=full_refresh)
    for outcome in outcomes:
        if outcome.error:
            raise outcome.error
    return outcomes


def test_lake_of_0_1_is_read_and_nothing_is_to_be_built(old_lake: Lake) -> None:
    pipeline = old_lake.pipeline("kept")
    assert {table.kind for table in pipeline.tables} == KINDS
    for table in pipeline.tables:
        entry = read_build(old_lake.table(str(table.table)))
        assert (entry.build_id, entry.definition) == (ROUNDS, legacy_digest(table))
        assert not entry.definition_fields
    plans = plan(old_lake.settings(), pipeline, table=None, full_refresh=False)
    assert {str(planned.table.table): (planned.action, planned.why) for planned in plans} == {
        str(table.table): ("nothing", ("its inputs have not moved",)) for table in pipeline.tables
    }
    now = datetime.now(timezone.utc)
    (stream,) = list_streams(old_lake.catalog, pipeline, bounds=None, now=now)
    assert (stream.rows, stream.quarantined, stream.checkpoint_id) == (186, 9, ROUNDS)
    tables = list_layer_tables(old_lake.catalog, pipeline, now=now)
    assert all(table.state == "fresh" and table.rows for table in tables)


@pytest.mark.services
@pytest.mark.spark
def test_lake_of_0_1_is_continued_without_a_rebuild(old_lake: Lake, broker: str, spark: SparkSession) -> None:
    old_lake.servers = broker
    pipeline, rounds = old_lake.pipeline("kept"), message_rounds(ROUNDS + 2)
    make_topic(broker, TOPIC)
    for messages in rounds[:ROUNDS]:  # the topic as it was, on another broker
        produce(broker, TOPIC, messages)
    assert [outcome.built for outcome in build_all(old_lake, spark)] == [None] * len(pipeline.tables)
    for number, messages in enumerate(rounds[ROUNDS:], start=ROUNDS + 1):
        produce(broker, TOPIC, messages)
        old_lake.land(spark, pipeline, replaced_topic=ReplacedTopic.CONTINUE if number == ROUNDS + 1 else None)
        actions = {outcome.table.table: outcome.plan.action for outcome in build_all(old_lake, spark) if outcome.plan}
        assert actions == {table.table: "refresh" if table.kind == "full" else "increment" for table in pipeline.tables}
    (verified,) = old_lake.verify(pipeline)
    assert (verified.missing, verified.doubled, verified.unlogged, verified.waiting) == (0, 0, 0, 0)
    assert (verified.landed, verified.quarantined) == (312, 15)
    for table in pipeline.tables:
        entry = read_build(old_lake.table(str(table.table)))
        assert entry.definition == definition_of(table).digest
        assert entry.generation == (entry.build_id if table.kind == "full" else 1), "it was rewritten"
    increments = rows_of(old_lake, pipeline)
    assert all(increments.values())
    build_all(old_lake, spark, full_refresh=True)
    assert rows_of(old_lake, pipeline) == increments
