"""A build's plan from metadata."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headrace.build.plan import plan_table
from tests.build.layer_lake import TABLES, Event, LayerLake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.mark.parametrize(("rows", "is_small"), [(100, True), (60_000, False)])
def test_refresh_is_small_if_its_inputs_are_even_where_nothing_moved(
    rows: int, is_small: bool, spark: SparkSession, tmp_path: Path
) -> None:
    layer_lake = LayerLake(tmp_path, spark, {"a/latest.sql": TABLES["a/latest.sql"]})
    layer_lake.land([Event("e1", "k1", "x", 1, 100, "u", 1)])
    layer_lake.build()
    plan = plan_table(layer_lake.catalog, layer_lake.pipeline, layer_lake.pipeline.tables[0], full_refresh=True)
    inputs = {name: replace(state, rows=rows) for name, state in plan.until.items()}
    assert replace(plan, since=inputs, until=inputs).is_small is is_small
