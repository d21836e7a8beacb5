"""The table is rolled back: what it no longer holds lands again, and what was refused is not refused twice."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from headrace.errors import TakenOverError
from tests.iceberg.tables import roll_back
from tests.support.lake import Lake, check_exactly_once, send_lineage
from tests.support.topics import Sent, make_topic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.services, pytest.mark.spark]


def snapshot_of(lake: Lake, name: str) -> int:
    snapshot_id = lake.table(name).metadata.current_snapshot_id
    assert snapshot_id is not None
    return snapshot_id


@pytest.mark.parametrize("bad_every", [(10, 0, 10), (10, 0, 0), (0, 10, 0)])
@pytest.mark.parametrize("to", [1, 2])
def test_rollback_between_two_runs(lake: Lake, spark: SparkSession, bad_every: tuple[int, ...], to: int) -> None:
    make_topic(lake.servers, lake.topic, partitions=2)
    snapshots: list[int] = []
    sent: list[Sent] = []
    good: dict[tuple[int, int], dict[str, object]] = {}
    for seed, every in enumerate(bad_every):
        some, events = send_lineage(lake, 60, seed=seed, partitions=2, bad_every=every)
        sent, good = sent + some, good | events
        lake.land(spark)
        snapshots.append(snapshot_of(lake, "lineage.events"))
    check_exactly_once(lake, sent, good=good)
    roll_back(lake.catalog, lake.table("lineage.events"), snapshots[to - 1])
    assert lake.lander().rolled_back == ("lineage.events",)
    lake.land(spark)
    check_exactly_once(lake, sent, good=good)
    assert lake.lander().rolled_back == ()
    assert max(row["checkpoint_id"] for row in lake.rows("lineage.events", "checkpoint_id")) == 4
    some, events = send_lineage(lake, 60, seed=9, partitions=2, bad_every=10)
    lake.land(spark)
    check_exactly_once(lake, sent + some, good=good | events)


def test_rollback_under_a_running_application(lake: Lake, spark: SparkSession) -> None:
    """Its next batch would start where the table no longer ends; it is refused, and a new application lands it all."""
    make_topic(lake.servers, lake.topic)
    sent, good = send_lineage(lake, 60, seed=1, bad_every=10)
    lander = lake.lander()
    lander.land_batch(spark.sparkContext)
    first = snapshot_of(lake, "lineage.events")
    for seed in (2, 3):
        more, events = send_lineage(lake, 60, seed=seed, bad_every=10)
        sent, good = sent + more, good | events
        if seed == 2:
            lander.land_batch(spark.sparkContext)
            roll_back(lake.catalog, lake.table("lineage.events"), first)
    with pytest.raises(TakenOverError, match="rolled back"):
        lander.land_batch(spark.sparkContext)
    lake.land(spark)
    check_exactly_once(lake, sent, good=good)
