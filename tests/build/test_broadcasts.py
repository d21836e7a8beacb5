"""Large builds broadcast changes only if they are few: the rows pass through the driver's memory."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headrace.build import joins, scanned_inputs
from headrace.build.plan import plan_table
from headrace.build.scanned_inputs import ScannedInputs
from headrace.build.strategies.registry import strategy_of
from headrace.spec.model.pipeline import TableName
from tests.build.layer_lake import TABLES, Event, LayerLake

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

NAMES = ("a/latest.sql", "a/by_event.sql", "b/rolling.sql")
LATEST = TableName("pond", "latest")


@pytest.fixture
def layer_lake(spark: SparkSession, tmp_path: Path) -> LayerLake:
    """Return a lake of which the driver of `rolling` has changed, and whose Spark broadcasts only with a hint."""
    layer_lake = LayerLake(tmp_path, spark, {name: TABLES[name] for name in NAMES})
    layer_lake.land([Event(f"e{number}", f"k{number}", "x", 1, 1, "u", number) for number in range(9)])
    layer_lake.build()
    layer_lake.land([Event(f"e{number}", f"k{number}", "y", 2, 1, "u", number) for number in range(4, 15)])
    layer_lake.build("pond.latest")
    layer_lake.build("pond.by_event")
    layer_lake.lake.spark.conf.set("spark.sql.autoBroadcastJoinThreshold", "-1")
    return layer_lake


def set_bound(monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    for module in (joins, scanned_inputs):
        monkeypatch.setattr(module, "MOST_BROADCAST", rows)


def inputs_of_rolling(layer_lake: LayerLake) -> ScannedInputs:
    table = next(table for table in layer_lake.pipeline.tables if table.table.name == "rolling")
    return ScannedInputs(layer_lake.lake, plan_table(layer_lake.catalog, layer_lake.pipeline, table))


def broadcasts(frame: DataFrame) -> bool:
    return "BroadcastExchange" in frame._jdf.queryExecution().executedPlan().toString()


@pytest.mark.parametrize("most", [5, 11])
def test_lookups_by_values_broadcast_only_few(layer_lake: LayerLake, monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    set_bound(monkeypatch, most)
    inputs = inputs_of_rolling(layer_lake)
    driver = inputs.table.drivers[0]
    values = inputs.changes(driver).entered.select(["k"])
    frames = [inputs.matching(driver, values), inputs.unchanged(driver, values), inputs.without(inputs.whole(driver), values)]
    assert [broadcasts(rows.frame) for rows in frames] == [most >= 11] * 3
    assert [rows.frame.count() for rows in frames] == [11, 0, 4]
    inputs.close()


@pytest.mark.parametrize("most", [5, 20])
def test_windows_broadcast_only_few_partitions(layer_lake: LayerLake, monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    set_bound(monkeypatch, most)
    inputs = inputs_of_rolling(layer_lake)
    driver, window = inputs.table.drivers[0], inputs.table.window
    assert window is not None
    context = inputs.around(driver, inputs.changes(driver), window).context.frame
    assert broadcasts(context) == (most >= 20)
    assert {row["k"] for row in context.collect()} == {f"k{number}" for number in range(4, 15)}
    inputs.close()


def test_increment_is_the_same_without_broadcasts(layer_lake: LayerLake, monkeypatch: pytest.MonkeyPatch) -> None:
    set_bound(monkeypatch, 0)
    inputs = inputs_of_rolling(layer_lake)
    staged = strategy_of(inputs.table).stage(inputs, 2)
    assert staged.rows == 6, "those of e9 to e14: the others changed in columns that it does not read"
    inputs.close()
