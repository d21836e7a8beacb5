"""Every pipeline's sample becomes what is expected, through a real topic, a real landing and a real build of every table.
Then every engine reads the same rows of each of these tables.

`expected/<stream>.jsonl` has the rows of a raw table, `expected/<layer>/<table>.jsonl` those of a layer table. After a change
that is meant, `make expected` writes them again; what git then shows is what the change does to the data.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable
from datetime import date, datetime
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from headrace.runs.building import build, open_lake
from headrace.services.trino import start_trino, stop_trino
from headrace.serving.engines.names import Engine
from headrace.sources.encode import encoder_of
from headrace.spec import list_pipelines, load_pipeline
from headrace.spec.columns import landed_columns
from headrace.spec.folders import BUILT_IN
from headrace.spec.layers import BUILD_ID, CARRIED, LayerTable
from headrace.spec.pipeline import Pipeline, Stream, TableName
from headrace.tables.catalog import count_rows, list_tables
from headrace.tables.spark_catalog import open_spark_catalog, spark_name, use_session
from headrace.tables.spark_files import load_java_table
from tests.changes import change_values
from tests.engine_rows import ask_trino, check_engines, check_same
from tests.lake import Lake, check_verified
from tests.topics import make_topic, produce

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.services, pytest.mark.spark]

Row = dict[str, Any]

NAMES = [found.name for found in list_pipelines(BUILT_IN) if found.built_in]


def values_of(stream: Stream, path: Path) -> list[bytes | None]:
    """Gives back a sample as messages: a JSON line is one as it stands, an Avro event is encoded, a change gets its schema."""
    lines = path.read_text(encoding="utf-8").splitlines()
    if stream.format == "debezium":
        return change_values((path.parent.parent / "schemas" / f"{stream.name}.avsc").read_text(encoding="utf-8"), lines)
    if stream.format == "json":
        return [line.encode() for line in lines]
    return [encoder_of(stream)(json.loads(line)) for line in lines]


def as_json(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat(timespec="microseconds").replace("+00:00", "Z")
    if isinstance(value, (date, Decimal)):
        return str(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, dict):
        return {name: as_json(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [as_json(inner) for inner in value]
    return value


def lines_of(rows: Iterable[Row]) -> list[str]:
    return [json.dumps({name: as_json(value) for name, value in row.items()}, ensure_ascii=False) for row in rows]


def raw_lines(lake: Lake, stream: Stream, *, topic: str) -> list[str]:
    """Gives back the rows of a raw table in the order of its sample, without what differs from run to run."""
    names = [column.name for column in landed_columns(stream) if column.name not in ("checkpoint_id", "kafka_timestamp")]
    in_order = sorted(lake.rows(str(stream.table)), key=lambda row: (row["kafka_offset"], row["kafka_partition"]))
    return lines_of({name: row[name] for name in names} | {"kafka_topic": topic} for row in in_order)


def layer_lines(lake: Lake, table: LayerTable) -> list[str]:
    """Gives back the rows of a layer table by its keys, without what builds keep in them for themselves."""
    rows = [
        {name: value for name, value in row.items() if name not in (BUILD_ID, CARRIED)} for row in lake.rows(str(table.table))
    ]
    by = [*table.keys, *table.sequence_by]
    return lines_of(sorted(rows, key=lambda row: ([(row[name] is not None, row[name]) for name in by], str(row))))


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
    for stream in pipeline.streams:
        make_topic(lake.servers, stream.topic, partitions=stream.partitions)
        sample = values_of(stream, pipeline.folder / "sample" / f"{stream.name}.jsonl")
        produce(lake.servers, stream.topic, sample, partitions=stream.partitions)
    lake.land(spark, pipeline)
    check_verified(lake, pipeline)
    outcomes = build(open_lake(lake.settings(), pipeline, spark)) if pipeline.tables else ()
    assert [outcome for outcome in outcomes if not outcome.built] == []


@pytest.mark.parametrize("name", NAMES)
def test_the_sample_becomes_what_is_expected(name: str, lake_of: Callable[[str], Lake], pytestconfig: pytest.Config) -> None:
    lake = lake_of(name)
    pipeline, by_default = lake.pipeline(name), load_pipeline(name, environ={}, folder=lake.folder)
    found = {
        f"{stream.name}.jsonl": raw_lines(lake, stream, topic=default.topic)
        for stream, default in zip(pipeline.streams, by_default.streams, strict=True)
    }
    found |= {f"{table.layer}/{table.table.name}.jsonl": layer_lines(lake, table) for table in pipeline.tables}
    folder = pipeline.folder / "expected"
    if pytestconfig.getoption("--write-expected"):
        for file, lines in found.items():
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            (folder / file).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    assert {path.relative_to(folder).as_posix() for path in folder.rglob("*.jsonl")} == set(found), "a file for every table"
    for file, lines in found.items():
        assert lines == (folder / file).read_text(encoding="utf-8").splitlines(), file


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
