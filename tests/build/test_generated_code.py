"""Large builds of a table share the code that Spark has generated for them."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pytest

from headrace.build.plan import TablePlan
from headrace.spark.java_classes import java_class
from tests.build.layer_lake import TABLES, LayerLake
from tests.build.paths import scanned_refreshes
from tests.build.test_one_truth import events_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def test_refresh_compiles_nothing_that_the_last_one_has_compiled(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TablePlan, "is_small", property(lambda plan: False))
    names = ("a/latest.sql", "a/by_event.sql", "b/groups.sql", "b/rolling.sql")
    new = "/*\nkeys: [id]\nsequence_by: n\n*/\nSELECT id, n, n * 20261118 AS code_that_no_other_test_has FROM pond.events"
    layer_lake = LayerLake(tmp_path, spark, {**{name: TABLES[name] for name in names}, "a/new.sql": new})
    layer_lake.land(events_of(Random(3), 30))
    with scanned_refreshes():
        compiled = [_compiled(spark)]
        for _ in range(3):
            layer_lake.build(full_refresh=True)
            compiled.append(_compiled(spark))
    first, _, last = (after - before for before, after in pairwise(compiled))
    assert first > 0
    assert last == 0, "a build number, or the order in which stages end, is part of the code"


def _compiled(spark: SparkSession) -> int:
    """Return how many generated classes Spark has compiled."""
    metrics = java_class(spark, "org.apache.spark.metrics.source.CodegenMetrics")
    return int(metrics.METRIC_COMPILATION_TIME().getCount())
