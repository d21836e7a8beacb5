"""Entity builds on Spark, end to end: rows, ids and figures equal builds in one process."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from headrace.build import build as build_module
from headrace.build.entities import training
from headrace.build.entities import weights as weights_module
from headrace.build.entities.distributed.refresh import refresh_on_spark
from headrace.build.entities.distributed.stored import StoredOnSpark
from headrace.build.entities.index import Stored
from headrace.build.entities.records import rules_of
from headrace.build.plan import plan_table
from headrace.build.planned_inputs import PlannedInputs
from headrace.build.staged_build import StagedBuild, current_snapshot
from headrace.build.strategies import entities as strategy
from headrace.build.strategies.registry import strategy_of
from headrace.iceberg.files.spark_files import load_java_table, plan_files, read_files
from headrace.iceberg.ledgers.build import BuildLedger, read_build
from tests.build.entities.people import TABLES, People, Record
from tests.build.entities.test_entity_builds import records_of
from tests.build.entities.test_fuzzy_builds import TABLES as FUZZY
from tests.build.entities.test_fuzzy_builds import TRAINED, person_records
from tests.build.layer_lake import assert_same
from tests.support.crashing import KilledError, die_in

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
NAME = "b/direct_index.sql"
EXPECTS = TABLES[NAME].replace(
    "except_column_list",
    "expect: {it has a day: {that: created_at > '2026-01-02', on_failure: quarantine}}\nexcept_column_list",
)


@pytest.fixture
def on_spark(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Builds run on Spark whatever their size. The list has the tables that were refreshed there."""
    refreshed: list[str] = []

    def noted(inputs: PlannedInputs, build_id: int) -> StagedBuild:
        refreshed.append(inputs.table.table.name)
        return refresh_on_spark(inputs, build_id)

    monkeypatch.setattr(strategy, "refresh_on_spark", noted)
    monkeypatch.setattr(strategy, "MOST_IN_PROCESS", 0)
    # To compile queries takes seconds, and rows are few here.
    monkeypatch.setattr(strategy, "open_spark_catalog", lambda spark, settings: spark)
    return refreshed


def entry_of(people: People, table: str) -> BuildLedger:
    """Return what a table's ledger says of its last build, without what differs between any two builds."""
    entry = read_build(people.catalog.load_table(f"pond.{table}"))
    return replace(entry, writer="", built_at_us=0, seconds=0, phases=None, reads={}, quarantine_files=(), snapshot_id=0)


def test_builds_on_spark_and_in_one_process_agree(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, on_spark: list[str]
) -> None:
    records = records_of(Random(4), 60)
    lakes = []
    for most, folder in ((1_000, "process"), (5, "spark")):
        monkeypatch.setattr(strategy, "MOST_IN_PROCESS", most)
        people = People(tmp_path_factory.mktemp(folder), spark, {NAME: EXPECTS})
        persisted = spark.sparkContext._jsc.getPersistentRDDs().size()
        steps = []
        for start, end in ((0, 30), (30, 34), (34, 39), (39, 50)):
            people.land(records[start:end])
            people.build(full_refresh=start == 39)
            steps.append((people.all_rows(), entry_of(people, "direct_index")))
        lakes.append(steps)
        assert spark.sparkContext._jsc.getPersistentRDDs().size() == persisted, "nothing is left on the executors"
    assert on_spark == ["direct_index"] * 2, "the first build, and the one that was asked for"
    for (rows, entry), (other_rows, other_entry) in zip(*lakes, strict=True):
        assert_same(other_rows, rows)
        assert other_entry == entry
        assert (entry.largest_entity or 0) > 1
    assert any(entry.expectations[0].failed for _, entry in lakes[0])
    people.land(records[50:])
    people.build()
    assert entry_of(people, "direct_index").generation == 5, "more rows than fit have changed, so all are resolved again"


def test_spark_looks_up_the_records_of_a_change(spark: SparkSession, tmp_path: Path) -> None:
    people = People(tmp_path, spark, FUZZY)
    people.send(*person_records(0, 30))
    people.send(*person_records(25, 8), Record("shop", "1", op="d", n=9))
    table = next(candidate for candidate in people.pipeline.tables if candidate.kind == "entities")
    session, catalog = people.lake.small, people.lake.catalog
    java_table = load_java_table(session, table.table)
    files = plan_files(java_table, snapshot_id=current_snapshot(java_table))
    own = catalog.load_table(str(table.table))
    here = Stored(own, people.lake.files.of(own, None), people.lake.read_files)
    rules = rules_of(table, score=None)
    assert table.fuzzy
    with read_files(session, java_table, files, with_positions=True) as rows:
        there = StoredOnSpark(here.table, here.files, here.read_files, session, rows)
        ours, theirs = here.index(rules), there.index(rules)
        emails = pl.Series(["ann.3@a.org", "bob.7@b.org", None, "nobody@b.org"])
        some = ours.having("email_normalized", pl.Series([row["email_normalized"] for row in people.index().values()][:20]))
        assert some.height
        for looked_up, wanted in (
            (theirs.having("email_normalized", emails), ours.having("email_normalized", emails)),
            (theirs.with_keys(some.select(table.keys)), ours.with_keys(some.select(table.keys))),
            (theirs.sharing_blocks(some.head(2), table.fuzzy), ours.sharing_blocks(some.head(2), table.fuzzy)),
            (there.complete(some), here.complete(some)),
        ):
            assert_frame_equal(looked_up, wanted, check_row_order=False)
        assert theirs.having("country", pl.Series(["US", "CA"]), most=3).height == 6
        touched = some["entity_id"].unique()
        assert theirs.largest_entity(touched) == ours.largest_entity(touched) > 0


def test_crashed_refresh_on_spark_recovers(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, on_spark: list[str]
) -> None:
    places = die_in(monkeypatch, build_module)
    people = People(tmp_path, spark, {NAME: TABLES[NAME]})
    people.land([Record("shop", "1", email="a@b.org"), Record("crm", "1", email="A@b.org", day=2)])
    places[:] = ["pond.direct_index:staged"]
    with pytest.raises(KilledError):
        people.build()
    assert not people.rows("direct_index")
    people.build()
    rows = people.index("direct_index")
    assert len(rows) == 2
    assert len({row["entity_id"] for row in rows.values()}) == 1
    assert on_spark == ["direct_index"] * 2
    plan = plan_table(people.catalog, people.pipeline, people.pipeline.tables[0], full_refresh=True)
    assert (
        strategy_of(plan.table)
        .describe(plan)
        .endswith("a refresh runs on Spark: it reads 2 rows, and up to 0 fit in this process")
    )


def test_alike_records_and_trained_weights_are_the_same_on_spark(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, on_spark: list[str]
) -> None:
    for module in (weights_module, training):
        monkeypatch.setattr(module, "LEAST_RECORDS", 100)
    monkeypatch.setattr(training, "MOST_RECORDS", 250)
    monkeypatch.setattr(strategy, "MOST_IN_PROCESS", 1_000)
    people = People(tmp_path, spark, TRAINED)
    people.send(*person_records(0, 150))
    rows, first = people.all_rows(), entry_of(people, "entity_index").weights
    assert first is not None
    assert first.columns
    assert first.records == len(people.index()) > 250, "weights are trained of a sample"
    monkeypatch.setattr(strategy, "MOST_IN_PROCESS", 0)
    people.build("entity_index", full_refresh=True)
    assert on_spark == ["entity_index"]
    assert_same(people.all_rows(), rows)
    assert {row["match_confidence"] == 100 for row in people.index().values()} == {True, False}
    assert entry_of(people, "entity_index").weights == replace(first, version=2)
