"""Rejected rows in large builds: computed once if they are few, and the same in the quarantine either way."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headrace.build import staged_build
from headrace.iceberg.metadata.quarantine import QUARANTINE
from headrace.quality import collected_refused
from headrace.quality.collected_refused import number_rows, read_refused, refused_metrics
from headrace.quality.expectations import Measured, measure
from headrace.quality.refused import stage_refused
from headrace.spec.model.layers import Expectation
from tests.build.layer_lake import CHECKED, Event, LayerLake
from tests.build.paths import scanned_refreshes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

WITH_PLACES = """/*
expect:
  amount is positive: {that: amount > 0, on_failure: quarantine}
  it's "known" \\\\: {that: g IS NOT NULL, on_failure: quarantine}
*/
SELECT id, n, g, amount, at, tags, kafka_topic, kafka_partition, kafka_offset, kafka_timestamp FROM pond.events"""


def events() -> list[Event]:
    groups = ["x", None, "grün 🌧\n\"'\\", "y"]
    return [Event(f"e{n // 2 * 2}", "k", groups[n % 4], n, n % 5 - 1, "u", n) for n in range(40)]


def quarantined(layer_lake: LayerLake) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = layer_lake.catalog.load_table(str(QUARANTINE)).scan().to_arrow().to_pylist()
    return sorted(({**row, "checkpoint_id": 0} for row in rows), key=repr)


@pytest.mark.parametrize("table", [CHECKED.format(on_failure="quarantine"), WITH_PLACES], ids=["upsert", "append"])
def test_refused_rows_are_the_same_in_one_pass_and_in_two(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table: str
) -> None:
    passes: list[str] = []

    def counted(*args: Any, **rest: Any) -> tuple[str, ...]:
        passes.append("second")
        return stage_refused(*args, **rest)

    monkeypatch.setattr(staged_build, "stage_refused", counted)
    layer_lake = LayerLake(tmp_path, spark, {"a/checked.sql": table})
    layer_lake.land(events())
    with scanned_refreshes():
        layer_lake.build()
        assert passes == []
        refused, rows = quarantined(layer_lake), layer_lake.all_rows()
        assert refused
        monkeypatch.setattr(collected_refused, "MOST_ROWS", 3)
        layer_lake.build(full_refresh=True)
    assert passes == ["second"]
    assert (quarantined(layer_lake), layer_lake.all_rows()) == (refused, rows)
    layer_lake.build(full_refresh=True)
    assert quarantined(layer_lake) == refused, "as a small build refuses them"


def observed(measured: Measured) -> Mapping[str, object]:
    metrics = refused_metrics(measured)
    row = number_rows(measured).rows.agg(*metrics).first() if metrics else None
    return row.asDict() if row else {}


def test_refused_rows_that_are_equal_are_all_collected(spark: SparkSession) -> None:
    measured = measure(spark.sql("SELECT 1 AS n FROM range(20)"), [Expectation("n is zero", "n = 0", "quarantine", 1)])
    refused = read_refused(measured, observed(measured))
    assert refused is not None
    assert refused.to_pylist() == [{"row": b'{"n":1}', "reason": "n is zero"}] * 20


def test_refused_rows_are_not_collected_beyond_the_bounds(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    zero = [Expectation("n is zero", "n = 0", "quarantine", 1)]
    monkeypatch.setattr(collected_refused, "MOST_ROWS", 4)
    many, few = (measure(spark.sql(f"SELECT 1 AS n FROM range({count})"), zero) for count in (5, 4))
    assert read_refused(many, observed(many)) is None
    assert (read_refused(few, observed(few)) or ()) != ()
    long = measure(spark.sql("SELECT 1 AS n, repeat('x', 5000) AS text"), zero)
    assert read_refused(long, observed(long)) is None


def test_refused_rows_of_a_repeated_stage_are_not_collected(spark: SparkSession) -> None:
    measured = measure(spark.sql("SELECT 1 AS n FROM range(2)"), [Expectation("n is zero", "n = 0", "quarantine", 1)])
    values = dict(observed(measured))
    collected = values["__collected"]
    assert isinstance(collected, list)
    assert read_refused(measured, {**values, "__collected": collected * 2, "__refused_rows": 4}) is None


def test_refused_rows_with_places_of_other_types_are_not_collected(spark: SparkSession) -> None:
    rows = spark.sql("SELECT 1 AS n, '3' AS kafka_offset")
    measured = measure(rows, [Expectation("n is zero", "n = 0", "quarantine", 1)])
    assert refused_metrics(measured) == []
    assert read_refused(measured, {}) is None
