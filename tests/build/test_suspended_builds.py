"""A build that is suspended while another application builds the same tables loses and duplicates no rows."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pytest

from headrace.settings import Settings
from tests.build.layer_lake import TABLES, LayerLake, assert_same
from tests.build.test_one_truth import events_of
from tests.support.application import Application, start_headrace
from tests.support.command import run_command
from tests.support.rest_catalog import lake_environ

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

FILES = {name: TABLES[name] for name in ("a/appended.sql", "a/latest.sql", "b/groups.sql")}
"""Rows that were built twice would be there twice, replace themselves, and be counted twice."""

Suspend = Callable[[LayerLake, str], Application]


@pytest.fixture
def suspend() -> Iterator[Suspend]:
    """Start `headrace build` of one table and wait until it has stopped itself before its commit; it ends with the test."""
    started: list[Application] = []

    def start(layer_lake: LayerLake, table: str) -> Application:
        environ = {**lake_environ(layer_lake.settings), "HEADRACE_FAULT": f"stop-application@pond.{table}:staged"}
        application = start_headrace("build", "pond", "--table", table, environ=environ, folder=layer_lake.folder)
        started.append(application)
        application.wait_to_stop()
        return application

    yield start
    for application in started:
        application.end()


@pytest.fixture
def layer_lake(spark: SparkSession, tmp_path: Path, lake_settings: Settings) -> LayerLake:
    """A lake that was built once, with more events to build."""
    layer_lake, events = LayerLake(tmp_path, spark, FILES, settings=lake_settings), events_of(Random(5), 60)
    layer_lake.land(events[:40])
    layer_lake.build()
    layer_lake.land(events[40:])
    return layer_lake


def build_by_command(layer_lake: LayerLake, spark: SparkSession, *, home: Path | None = None) -> tuple[int, str]:
    """Run `headrace build` on the same catalog, in the lake's home or in one that knows nothing of its locks."""
    environ = lake_environ(replace(layer_lake.settings, home=home or layer_lake.settings.home))
    return run_command("build", "pond", environ=environ, folder=layer_lake.folder, spark=spark)


def check_rows(layer_lake: LayerLake) -> None:
    """Compare the tables with those of a full refresh; each event of the appended one is there as often as it was landed."""
    built = layer_lake.all_rows()
    assert sum(built["appended"].values()) == 60
    layer_lake.build(full_refresh=True)
    assert_same(built, layer_lake.all_rows())


@pytest.mark.parametrize("table", ["appended", "latest"])
def test_suspended_build_commits_nothing_after_another_build(
    layer_lake: LayerLake, spark: SparkSession, suspend: Suspend, table: str
) -> None:
    suspended = suspend(layer_lake, table)
    code, said = build_by_command(layer_lake, spark)
    assert (code, f"another application already builds this pipeline (process {suspended.pid} on " in said) == (3, True), said
    code, said = build_by_command(layer_lake, spark, home=layer_lake.folder / "elsewhere")
    assert code == 0, said
    overtaken_by = layer_lake.catalog.load_table(f"pond.{table}").metadata_location
    suspended.signal(signal.SIGCONT)
    assert suspended.wait() == 0, suspended.said()
    assert "nothing has changed since the last build" in suspended.said()
    assert layer_lake.catalog.load_table(f"pond.{table}").metadata_location == overtaken_by
    check_rows(layer_lake)
