"""Every pipeline's sample becomes what is expected, through a real topic, a real landing and real builds of every table: most
of it in a first build, and the rest as few changes. Then every engine reads the same rows of each of these tables.

After a change that is meant, `make expected` writes what is expected again; what git then shows is what the change does to the
data.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING

import pytest

from headrace.iceberg.catalog.spark import open_spark_catalog
from headrace.servers.trino import start_trino, stop_trino
from headrace.sessions.building import build, open_lake
from headrace.spec.model.pipeline import Pipeline
from tests.operations.maintain.keeping import maintain_all, thorough
from tests.support.engine_rows import change_by_hand, check_engines, check_trino, read_with_spark
from tests.support.lake import Lake, check_verified
from tests.support.samples import NAMES, check_expected, found_lines, send_sample

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.services, pytest.mark.spark]


@pytest.fixture(scope="module")
def lake_of(broker: str, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Lake]:
    """Return the lake of a pipeline's sample, landed and built once for all tests of this file."""

    @cache
    def make(name: str) -> Lake:
        lake = Lake(tmp_path_factory.mktemp(name) / "work", broker, f"sample-of-{name}")
        lake.folder.mkdir()
        land_and_build(lake, lake.pipeline(name), spark)
        return lake

    return make


def land_and_build(lake: Lake, pipeline: Pipeline, spark: SparkSession) -> None:
    opened = None
    for share in send_sample(lake, pipeline, until=(0.9, 1.0)):
        lake.land(spark, pipeline)
        if share < 1:
            check_verified(lake, pipeline)  # before builds put refused rows of their own into the quarantine
        if pipeline.tables:
            opened = opened or open_lake(lake.settings(), pipeline, spark)
            assert [outcome for outcome in build(opened) if outcome.error] == []


@pytest.mark.parametrize("name", NAMES)
def test_sample_becomes_what_is_expected(name: str, lake_of: Callable[[str], Lake], pytestconfig: pytest.Config) -> None:
    lake = lake_of(name)
    pipeline = lake.pipeline(name)
    lines_by_file = found_lines(lake, pipeline)
    if pytestconfig.getoption("--write-expected"):
        for file, lines in lines_by_file.items():
            path = pipeline.folder / "expected" / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    check_expected(pipeline, lines_by_file)


def keep_well(lake: Lake, pipeline: Pipeline, spark: SparkSession) -> None:
    """Delete rows where they are, as another engine would, and maintains all tables."""
    change_by_hand(lake, spark)
    done = maintain_all(thorough(lake.settings()), open_spark_catalog(spark, lake.settings()), pipeline)
    assert any(outcome.before.delete_files > outcome.after.delete_files == 0 for outcome in done.values())


@pytest.mark.parametrize("name", NAMES)
def test_every_engine_reads_the_same_rows(name: str, lake_of: Callable[[str], Lake], spark: SparkSession) -> None:
    lake = lake_of(name)
    pipeline = lake.pipeline(name)
    with_deletes = [table for table in pipeline.tables if lake.table(str(table.table)).inspect.delete_files().num_rows]
    assert bool(with_deletes) == bool(pipeline.tables), "few changes are put in place"
    check_engines(lake.catalog, read_with_spark(lake, spark))
    keep_well(lake, pipeline, spark)
    check_engines(lake.catalog, read_with_spark(lake, spark))


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_trino_reads_the_same_rows(name: str, lake_of: Callable[[str], Lake], spark: SparkSession) -> None:
    lake = lake_of(name)
    server = start_trino(lake.settings(), detached=False, report=print)
    try:
        check_trino(server.url, lake.catalog, read_with_spark(lake, spark))
        keep_well(lake, lake.pipeline(name), spark)
        check_trino(server.url, lake.catalog, read_with_spark(lake, spark))  # it sees what was committed meanwhile
    finally:
        stop_trino(lake.settings())
