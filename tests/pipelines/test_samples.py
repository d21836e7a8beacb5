"""Every pipeline's sample becomes what is expected, through a real topic, a real landing and a real build of every table.
Then every engine reads the same rows of each of these tables.

After a change that is meant, `make expected` writes what is expected again; what git then shows is what the change does to the
data.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from headrace.runs.building import build, open_lake
from headrace.services.trino import start_trino, stop_trino
from headrace.serving.engines.names import Engine
from headrace.spec.pipeline import Pipeline, TableName
from headrace.tables.catalog import count_rows, list_tables
from headrace.tables.spark_catalog import open_spark_catalog, spark_name, use_session
from headrace.tables.spark_files import load_java_table
from tests.engine_rows import ask_trino, check_engines, check_same
from tests.lake import Lake, check_verified
from tests.samples import NAMES, check_expected, found_lines, send_sample

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.services, pytest.mark.spark]


@pytest.fixture(scope="module")
def lake_of(broker: str, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Lake]:
    """Gives the lake of a pipeline's sample, landed and built once for all tests of this file."""

    @cache
    def make(name: str) -> Lake:
        lake = Lake(tmp_path_factory.mktemp(name) / "work", broker, f"sample-of-{name}")
        lake.folder.mkdir()
        land_and_build(lake, lake.pipeline(name), spark)
        return lake

    return make


def land_and_build(lake: Lake, pipeline: Pipeline, spark: SparkSession) -> None:
    send_sample(lake, pipeline)
    lake.land(spark, pipeline)
    check_verified(lake, pipeline)
    outcomes = build(open_lake(lake.settings(), pipeline, spark)) if pipeline.tables else ()
    assert [outcome for outcome in outcomes if not outcome.built] == []


@pytest.mark.parametrize("name", NAMES)
def test_the_sample_becomes_what_is_expected(name: str, lake_of: Callable[[str], Lake], pytestconfig: pytest.Config) -> None:
    lake = lake_of(name)
    pipeline = lake.pipeline(name)
    found = found_lines(lake, pipeline)
    if pytestconfig.getoption("--write-expected"):
        for file, lines in found.items():
            path = pipeline.folder / "expected" / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    check_expected(pipeline, found)


def change_by_hand(lake: Lake, spark: SparkSession) -> None:
    """Deletes the first row of each file of the two largest tables where it is, and packs the second and the third anew."""
    session = open_spark_catalog(spark, lake.settings())
    use_session(session)
    rows = {name: count_rows(lake.table(name)) for name in list_tables(lake.catalog)}
    by_size = sorted((name for name, count in rows.items() if count > 1), key=lambda name: -rows[name])
    for name in by_size[:2]:
        table = spark_name(TableName.parse(name))
        session.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('write.delete.mode' = 'merge-on-read')")
        session.sql(f"DELETE FROM {table} WHERE abs(_pos) = 0")
        assert lake.table(name).inspect.delete_files().num_rows > 0
    for name in by_size[1:3]:
        before = lake.table(name).current_snapshot()
        actions = session._jvm.org.apache.iceberg.spark.actions.SparkActions.get(session._jsparkSession)  # type: ignore[union-attr]
        actions.rewriteDataFiles(load_java_table(session, TableName.parse(name))).option("rewrite-all", "true").execute()
        assert lake.table(name).current_snapshot() != before


def read_with_spark(lake: Lake, spark: SparkSession) -> dict[str, pa.Table]:
    """Gives back all tables as Spark reads them, which does it with Iceberg's own code."""
    session = open_spark_catalog(spark, lake.settings(), few_rows=True)
    names = list_tables(lake.catalog)
    return {name: session.table(spark_name(TableName.parse(name))).toArrow() for name in names}


@pytest.mark.parametrize("name", NAMES)
def test_every_engine_reads_the_same_rows(name: str, lake_of: Callable[[str], Lake], spark: SparkSession) -> None:
    lake = lake_of(name)
    change_by_hand(lake, spark)
    check_engines(lake.catalog, read_with_spark(lake, spark))


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_trino_reads_the_same_rows(name: str, lake_of: Callable[[str], Lake], spark: SparkSession) -> None:
    lake = lake_of(name)
    server = start_trino(lake.settings(), detached=False, report=print)
    try:
        for change in (lambda lake, spark: None, change_by_hand):  # a server that runs sees what is committed meanwhile
            change(lake, spark)
            truth = read_with_spark(lake, spark)
            found = {each: ask_trino(server.url, lake.catalog, f"SELECT * FROM {each}") for each in truth}
            check_same(Engine.trino, truth, found)
    finally:
        stop_trino(lake.settings())
