"""One broker and one Spark session for each process that runs tests; a lake for each test."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings
from psycopg import sql
from psycopg.conninfo import make_conninfo

from headrace.servers.jars import resolve_jars
from headrace.servers.java import find_java_home
from headrace.servers.kafka import start_kafka, stop_kafka
from headrace.servers.postgres import start_postgres, stop_postgres
from headrace.settings import Settings, load_settings
from headrace.spark.session import start_spark
from tests.support.class_archive import java_options, spark_conf
from tests.support.lake import Lake
from tests.support.rest_catalog import empty_lake, running_rest_catalog

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

os.environ["JAVA_TOOL_OPTIONS"] = java_options()

hypothesis_settings.register_profile("headrace", deadline=None, suppress_health_check=[HealthCheck.too_slow])
hypothesis_settings.load_profile("headrace")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--write-expected", action="store_true", help="write the expected rows of the pipelines' samples again: make expected"
    )


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The bootstrap servers of the broker that all tests share."""
    folder = tmp_path_factory.mktemp("broker")
    settings = load_settings(flags={}, environ={}, folder=folder)
    yield start_kafka(settings, detached=False, report=lambda sentence: None).bootstrap_servers
    stop_kafka(settings)


def _heap() -> dict[str, str]:
    """Return a heap that holds what hundreds of tests leave behind, so that it is rarely collected as a whole."""
    options = "spark.driver.defaultJavaOptions"
    return {"spark.driver.memory": "2g", options: f"{spark_conf()[options]} -Xms1g -Xmn512m"}


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[SparkSession]:
    """The Spark session that all tests share which land in this process. Long tests may have their tables on S3."""
    is_on_s3 = any(test.get_closest_marker("long") for test in request.session.items)
    folder = tmp_path_factory.mktemp("spark")
    settings = load_settings(flags={"spark.master": "local[2]"}, environ={}, folder=folder)
    session = start_spark(
        settings,
        java_home=find_java_home(os.environ, cache=settings.home / "java"),
        jars=[jar for group in ("spark", *(("aws",) if is_on_s3 else ())) for jar in resolve_jars(group, report=print)],
        conf={**spark_conf(), **_heap()},
    )
    yield session
    session.stop()


@pytest.fixture(scope="session")
def postgres_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The connection string of the Postgres that all tests share."""
    settings = load_settings(flags={}, environ={}, folder=tmp_path_factory.mktemp("postgres"))
    yield start_postgres(settings, detached=False, report=lambda sentence: None).dsn
    stop_postgres(settings)


@pytest.fixture
def database(postgres_server: str, request: pytest.FixtureRequest) -> Iterator[str]:
    """The connection string of an empty database of this test's own."""
    name = re.sub(r"[^a-z0-9]+", "_", request.node.name.lower())[:60].strip("_")
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        yield make_conninfo(postgres_server, dbname=name)
        # FORCE is refused while autovacuum is in the database. A plain DROP ends autovacuum, but not the test's own sessions.
        connection.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = %s AND usename = current_user", [name]
        )
        connection.execute(sql.SQL("DROP DATABASE {}").format(sql.Identifier(name)))


@pytest.fixture(scope="session")
def rest_catalog(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    """The settings of the REST catalog and the S3 server that all tests share."""
    with running_rest_catalog(tmp_path_factory.mktemp("rest")) as settings:
        yield settings


@pytest.fixture(params=["sqlite", pytest.param("rest", marks=pytest.mark.long)])
def lake_settings(tmp_path: Path, request: pytest.FixtureRequest) -> Settings:
    """The settings of an empty lake: on SQLite and this machine's disk, and on the stack's REST catalog and S3."""
    if request.param == "rest":
        return empty_lake(request.getfixturevalue("rest_catalog"), tmp_path)
    return load_settings(flags={}, environ={}, folder=tmp_path)


@pytest.fixture
def make_lake(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Callable[[str], Lake]]:
    """Make this test's lake on a broker; processes that were started for it end with the test."""
    lakes: list[Lake] = []

    def make(servers: str) -> Lake:
        topic = re.sub(r"[^a-zA-Z0-9]+", "-", request.node.name).strip("-")
        lakes.append(Lake(tmp_path / "work", servers, topic))
        lakes[-1].folder.mkdir(exist_ok=True)
        return lakes[-1]

    yield make
    for lake in lakes:
        for application in lake.applications:
            application.end()


@pytest.fixture
def lake(make_lake: Callable[[str], Lake], broker: str) -> Lake:
    """This test's lake, on the broker that all share."""
    return make_lake(broker)
