"""A backlog is built in parts that fit into this process, with the same rows as one build."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pytest

from headrace.build import local_tables, parts
from headrace.build import plan as planning
from headrace.build.plan import plan_table
from headrace.sessions.building import Outcome, build
from tests.build.layer_lake import AGGREGATES, TABLES, Event, LayerLake, assert_same
from tests.build.paths import counted_paths, scanned_refreshes
from tests.build.test_one_truth import events_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

LATEST = {"a/latest.sql": TABLES["a/latest.sql"]}


def land_apart(layer_lake: LayerLake, events: list[Event], *, size: int) -> None:
    """Land events in commits of so many."""
    for first in range(0, len(events), size):
        layer_lake.land(events[first : first + size])


def test_parts_end_with_the_rows_of_one_build(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    layer_lake = LayerLake(tmp_path, spark, {**TABLES, **AGGREGATES})
    events = events_of(Random(33), 60)
    monkeypatch.setattr(planning, "PART_ROWS", 12)
    outcomes: list[Outcome] = []
    land_apart(layer_lake, events[:30], size=4)
    build(layer_lake.lake, done=outcomes.append)
    assert {outcome.built.plan.action for outcome in outcomes if outcome.rest_since and outcome.built} == {
        "refresh",
        "increment",
    }
    outcomes.clear()
    land_apart(layer_lake, events[30:], size=4)
    with counted_paths() as taken:
        build(layer_lake.lake, done=outcomes.append)
    in_parts = {outcome.table.kind for outcome in outcomes if outcome.rest_since}
    assert in_parts == {table.kind for table in layer_lake.pipeline.tables if not table.traits.rewrites_all}
    assert taken["ScannedInputs"] == 0
    by_parts = layer_lake.all_rows()
    with scanned_refreshes():
        layer_lake.build(full_refresh=True)
    assert_same(by_parts, layer_lake.all_rows())


def test_plan_names_the_part_of_a_backlog(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    layer_lake = LayerLake(tmp_path, spark, LATEST)
    land_apart(layer_lake, events_of(Random(1), 20), size=5)
    monkeypatch.setattr(planning, "PART_ROWS", 12)
    plan = plan_table(layer_lake.catalog, layer_lake.pipeline, layer_lake.pipeline.tables[0])
    assert plan.why[-1] == "it takes the oldest 10 changed rows first"
    (until,) = plan.until.values()
    assert (until.position, until.rows) == (2, 10)
    assert plan.rest_since
    refresh = plan_table(layer_lake.catalog, layer_lake.pipeline, layer_lake.pipeline.tables[0], full_refresh=True)
    assert refresh.rest_since is None, "a full refresh replaces the table at once"


def test_commit_that_is_too_large_and_a_huge_backlog_are_built_at_once(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    layer_lake = LayerLake(tmp_path, spark, LATEST)
    table = layer_lake.pipeline.tables[0]
    land_apart(layer_lake, events_of(Random(1), 40), size=2)
    monkeypatch.setattr(planning, "PART_ROWS", 3)
    monkeypatch.setattr(parts, "MOST_PARTS", 10)
    assert plan_table(layer_lake.catalog, layer_lake.pipeline, table).rest_since is None, "more than 10 parts"
    monkeypatch.setattr(parts, "MOST_PARTS", 100)
    monkeypatch.setattr(planning, "PART_ROWS", 1)
    plan = plan_table(layer_lake.catalog, layer_lake.pipeline, table)
    assert plan.rest_since
    assert [state.rows for state in plan.until.values()] == [2], "one commit at least"
    monkeypatch.setattr(planning, "FEW_REFRESHED", 1)
    assert plan_table(layer_lake.catalog, layer_lake.pipeline, table).rest_since is None, "not one commit fits"


def test_rows_that_do_not_fit_are_built_in_smaller_parts(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    layer_lake = LayerLake(tmp_path, spark, {**LATEST, "a/appended.sql": TABLES["a/appended.sql"]})
    events = events_of(Random(2), 60)
    layer_lake.land(events[:10])
    layer_lake.build()
    land_apart(layer_lake, events[10:], size=5)
    monkeypatch.setattr(planning, "_LEAST_PART_ROWS", 10)
    monkeypatch.setattr(local_tables, "MOST_ROWS", 30)
    with counted_paths() as taken:
        layer_lake.build()
    assert taken == {"LocalInputs": 2 * 3}, "two parts of 10 rows, and the 30 that are left"
    by_parts = layer_lake.all_rows()
    layer_lake.build(full_refresh=True)
    assert_same(by_parts, layer_lake.all_rows())


def test_commits_that_maintenance_removed_are_built_with_the_next(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    layer_lake = LayerLake(tmp_path, spark, LATEST)
    table = layer_lake.pipeline.tables[0]
    land_apart(layer_lake, events_of(Random(3), 20), size=5)
    raw = layer_lake.catalog.load_table("pond.events")
    first, second, *_ = sorted(raw.snapshots(), key=lambda snapshot: snapshot.sequence_number or 0)
    raw.maintenance.expire_snapshots().by_ids([first.snapshot_id, second.snapshot_id]).commit()
    monkeypatch.setattr(planning, "PART_ROWS", 16)
    plan = plan_table(layer_lake.catalog, layer_lake.pipeline, table)
    (until,) = plan.until.values()
    assert (until.position, until.rows) == (3, 15), "the first commit that is left brings the rows of those before it"
    layer_lake.build()
    by_parts = layer_lake.all_rows()
    layer_lake.build(full_refresh=True)
    assert_same(by_parts, layer_lake.all_rows())
