"""Random pipelines have the same rows however they are built, and differences are reported."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, Phase, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from headrace.sessions.building import Outcome
from tests.build.layer_lake import LayerLake
from tests.build.random_pipelines import random_pipeline
from tests.build.truth import play

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@given(seed=st.integers(0, 2**32))
@hypothesis_settings(max_examples=1, phases=[Phase.explicit, Phase.generate], suppress_health_check=list(HealthCheck))
@pytest.mark.spark
def test_increments_a_large_build_and_a_full_refresh_agree(
    seed: int, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> None:
    played = play(seed, spark, tmp_path_factory.mktemp("random"), tables=5, rounds=3)
    assert played.differences == [], f"python -m tests.build.truth 1 {seed}"


@pytest.mark.spark
def test_random_pipelines_report_a_foreign_change(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build = LayerLake.build

    def tampered(lake: LayerLake, table: str | None = None, *, full_refresh: bool = False) -> tuple[Outcome, ...]:
        outcomes = build(lake, table, full_refresh=full_refresh)
        if full_refresh or lake.folder.name == "big":
            lake.catalog.load_table("pond.staged").delete()
        return outcomes

    monkeypatch.setattr(LayerLake, "build", tampered)
    played = play(3, spark, tmp_path, tables=3, rounds=2)
    assert [text.split("\n")[0].split(": ")[0] for text in played.differences] == ["staged", "staged"]
    assert all("rows only with increments" in text for text in played.differences)


def test_seed_makes_the_same_pipeline_again() -> None:
    assert random_pipeline(Random(7)) == random_pipeline(Random(7))
    assert random_pipeline(Random(7)) != random_pipeline(Random(8))
