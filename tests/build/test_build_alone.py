"""Build one table without its upstream tables, as a task of an orchestrator does."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headrace.errors import BuildError, QualityError, SpecError
from headrace.quality.results import read_results
from headrace.sessions.building import Outcome, choose_tables, open_lake
from headrace.sessions.one_table import build_alone, describe_quality
from headrace.spec import load_pipeline
from tests.build.layer_lake import CHECKED, READER, Event, LayerLake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def tables(*, on_failure: str) -> dict[str, str]:
    return {"a/checked.sql": CHECKED.format(on_failure=on_failure), "b/reader.sql": READER}


def event(name: str, group: str | None, *, n: int, cents: int = 100) -> Event:
    return Event(name, "k", group, n, cents, "u", n)


def alone(layer_lake: LayerLake, spark: SparkSession, name: str) -> Outcome:
    """Build a table as a command of its own does: nothing but it and what it reads is looked at."""
    chosen = choose_tables(layer_lake.pipeline, name)
    lake = open_lake(layer_lake.settings, layer_lake.pipeline, spark, tables=chosen)
    assert {table.table for table in chosen} <= lake.columns.keys()
    outcomes: list[Outcome] = []
    outcome = build_alone(lake, chosen[-1], full_refresh=False, done=outcomes.append)
    assert outcomes == [outcome]
    return outcome


def test_tables_built_one_by_one_equal_a_full_build(spark: SparkSession, tmp_path: Path) -> None:
    layer_lake = LayerLake(tmp_path, spark, tables(on_failure="drop"))
    layer_lake.land([event("a", "x", n=1), event("b", "x", n=2), event("c", None, n=3), event("d", "y", n=4, cents=-5)])
    first = [alone(layer_lake, spark, name) for name in ("checked", "reader")]
    assert [outcome.built is not None for outcome in first] == [True, True]
    assert describe_quality(first[0]) == [
        "quality: amount is positive: 4 rows checked, 1 failing, dropped",
        "quality: the group is known: 4 rows checked, 1 failing, counted",
    ]
    assert describe_quality(first[1]) == ["quality: the table has no expectations"]
    layer_lake.land([event("a", "z", n=5)])
    assert alone(layer_lake, spark, "reader").built is None, "what it reads has not been built"
    second = alone(layer_lake, spark, "checked")
    assert describe_quality(second)[0] == "quality: amount is positive: 1 row checked, 0 failing"
    assert alone(layer_lake, spark, "reader").built is not None
    again = alone(layer_lake, spark, "checked")
    assert again.built is None
    assert describe_quality(again) == describe_quality(second), "those of the last build"
    followed = layer_lake.all_rows()
    assert any("'z'" in row for row in followed["reader"]), "a row that moved to another group is counted there"
    layer_lake.build(full_refresh=True)
    assert layer_lake.all_rows() == followed
    assert {row["build_id"] for row in read_results(layer_lake.catalog, "pond")} == {1, 2, 3}


def test_build_of_a_table_with_an_unbuilt_input_fails(spark: SparkSession, tmp_path: Path) -> None:
    layer_lake = LayerLake(tmp_path, spark, tables(on_failure="drop"))
    layer_lake.land([event("a", "x", n=1)])
    with pytest.raises(BuildError, match=r"its upstream table pond\.checked was never built") as refused:
        alone(layer_lake, spark, "reader")
    assert "headrace build pond --table pond.reader" in refused.value.next_step
    assert not layer_lake.catalog.table_exists("pond.reader")


def test_failed_build_reports_expectation_results(spark: SparkSession, tmp_path: Path) -> None:
    layer_lake = LayerLake(tmp_path, spark, tables(on_failure="fail"))
    layer_lake.land([event("a", "x", n=1, cents=-1)])
    outcome = alone(layer_lake, spark, "checked")
    assert isinstance(outcome.error, QualityError)
    assert describe_quality(outcome) == [
        "quality: amount is positive: 1 row checked, 1 failing, build failed: nothing was published",
        "quality: the group is known: 1 row checked, 0 failing",
    ]
    assert [row["published"] for row in read_results(layer_lake.catalog, "pond")] == [False, False]


def test_error_in_one_table_does_not_stop_others(spark: SparkSession, tmp_path: Path) -> None:
    layer_lake = LayerLake(tmp_path, spark, tables(on_failure="drop"))
    layer_lake.land([event("a", "x", n=1)])
    (layer_lake.folder / "pipelines/pond/b/wrong.sql").write_text("SELECT array(id) + 1 AS sum FROM pond.events")
    layer_lake.pipeline = load_pipeline("pond", environ={}, folder=tmp_path)
    assert alone(layer_lake, spark, "checked").built
    with pytest.raises(SpecError, match=r"wrong\.sql"):
        alone(layer_lake, spark, "wrong")
