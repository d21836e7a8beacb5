"""Whole batches through Kafka and Spark: the tables contain exactly the messages that were sent."""

from __future__ import annotations

import base64
import json
import shutil
from collections import Counter
from collections.abc import Callable
from datetime import datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from confluent_kafka.admin import NewPartitions
from pyiceberg.catalog import Catalog

from headrace.app.figures import read_now
from headrace.backoff import Backoff
from headrace.errors import GapError, RetryableError, SpecError, UnavailableError
from headrace.iceberg.commits import commit as commit_module
from headrace.iceberg.files.storage import local_path
from headrace.iceberg.ledgers.landing import read_ledger
from headrace.landing.commit_log import read_log
from tests.support.lake import Lake, check_exactly_once, check_verified
from tests.support.topics import delete_records, lineage_events, lineage_values, make_topic, produce, producer_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.services, pytest.mark.spark]
UTC = timezone.utc


def write_pipeline(lake: Lake, name: str, streams: dict[str, str], *, partitions: int = 2, extra: str = "") -> None:
    """Write a pipeline of JSON streams with the columns of their DDL."""
    folder = lake.folder / "pipelines" / name
    (folder / "schemas").mkdir(parents=True, exist_ok=True)
    lines = [f"name: {name}", "about: a test", "streams:"]
    for stream, ddl in streams.items():
        (folder / "schemas" / f"{stream}.sql").write_text(ddl, encoding="utf-8")
        lines += [
            f"  {stream}:",
            f"    topic: {lake.topic}-{stream}",
            f"    partitions: {partitions}",
            "    format: json",
            f"    schema: schemas/{stream}.sql",
            f"    table: {name}.{stream}",
            *([f"    {extra}"] if extra else []),
        ]
    (folder / "pipeline.yml").write_text("\n".join(lines) + "\n", encoding="utf-8")


BAD: list[tuple[bytes | None, str]] = [
    (b'{"id": 1', "malformed JSON"),
    (b'{"id": "one"}', "wrong type"),
    (b'{"id": 3000000000}', "overflow"),
    (b'{"amount": 123456789.00}', "overflow"),
    (b'{"amount": 1E-999999999}', "overflow"),
    (b'{"name": "\xff\xfe"}', "invalid UTF-8"),
    (b'{"at": "2026-02-30T00:00:00Z"}', "bad timestamp"),
    (b'{"at": "9999-12-31T23:59:59-10:00"}', "bad timestamp"),
    (b"", "empty value"),
    (None, "empty value"),
    (b'{"name": "' + b"x" * 5_000_000 + b'"}', "too large"),
    (b'{"deep":' + b"[" * 20_000 + b"]" * 20_000 + b"}", "malformed JSON"),
]


def test_landing_quarantines_every_kind_of_bad_row(lake: Lake, spark: SparkSession) -> None:
    ddl = "id INT, amount DECIMAL(9,2), name STRING, at TIMESTAMP"
    write_pipeline(lake, "shop", {"orders": ddl, "refunds": ddl, "quiet": ddl}, extra="partition_by: [days(at)]")
    pipeline = lake.pipeline("shop")
    wanted: Counter[tuple[Any, ...]] = Counter()
    for stream in ("orders", "refunds"):
        make_topic(lake.servers, f"{lake.topic}-{stream}", partitions=2, config={"max.message.bytes": "10000000"})
        good = [
            json.dumps({"id": number, "amount": "19.99", "name": stream, "at": "2026-02-24T12:00:00Z", "note": number}).encode()
            for number in range(50)
        ]
        mixed: list[bytes | None] = [*good[:25], *(value for value, _ in BAD), *good[25:]]
        for one in produce(lake.servers, f"{lake.topic}-{stream}", mixed, partitions=2):
            reason = next((reason for value, reason in BAD if value == one.value), "")
            if reason:
                wanted[f"shop.{stream}", one.partition, one.offset, one.value, reason] += 1
    (batch,) = lake.land(spark, pipeline)
    assert {landed.label: (landed.rows, landed.bad) for landed in batch.landed} == {
        "shop.orders": (50, len(BAD)),
        "shop.refunds": (50, len(BAD)),
    }
    refused = [row for label in ("shop.orders", "shop.refunds") for row in lake.quarantine(label)]
    counted = Counter(
        (row["stream"], row["partition"], row["offset"], row["original_bytes"], row["reason"].split(":")[0]) for row in refused
    )
    assert counted == wanted
    assert {row["checkpoint_id"] for row in refused} == {1}
    for stream in ("orders", "refunds"):
        rows = lake.rows(f"shop.{stream}")
        assert sorted(row["id"] for row in rows) == list(range(50))
        assert {(row["amount"], row["at"]) for row in rows} == {(Decimal("19.99"), datetime(2026, 2, 24, 12, tzinfo=UTC))}
        assert {row["_extra"] for row in rows} == {f'{{"note":{number}}}' for number in range(50)}
    check_verified(lake, pipeline)
    status = {one.label: one for one in read_now(lake.settings(), [pipeline])[0].streams}
    assert status["shop.orders"].extras == {"note": 50}
    assert (status["shop.orders"].rows, status["shop.orders"].quarantined, status["shop.orders"].lag) == (50, len(BAD), 0)
    assert (status["shop.quiet"].rows, status["shop.quiet"].checkpoint_id, status["shop.quiet"].last_commit) == (0, 0, None)


def test_landing_in_small_batches_gives_the_same_table(lake: Lake, spark: SparkSession) -> None:
    make_topic(lake.servers, lake.topic, partitions=3)
    values = lineage_values(1000, seed=3, bad_every=100)
    sent = produce(lake.servers, lake.topic, values, partitions=3)
    batches = lake.land(spark, HEADRACE_BATCH_MAX_RECORDS="150")
    assert len(batches) >= 7
    assert max(sum(part.rows + part.bad for part in batch.landed) for batch in batches) <= 153
    assert [batch.landed[0].checkpoint_id for batch in batches] == list(range(1, len(batches) + 1))
    events = {
        value: event for value, event in zip(values, lineage_events(1000, seed=3), strict=True) if value and len(value) > 20
    }
    good = {(one.partition, one.offset): events[one.value] for one in sent if one.value in events}
    check_exactly_once(lake, sent, good=good)


def test_landing_commits_a_batch_of_only_bad_rows(lake: Lake, spark: SparkSession) -> None:
    make_topic(lake.servers, lake.topic)
    sent = produce(lake.servers, lake.topic, [b"\x01", b"\x02", None])
    lake.land(spark)
    check_exactly_once(lake, sent, good={})
    assert lake.land(spark) == []
    more = produce(lake.servers, lake.topic, [b"\x03"])
    lake.land(spark)
    check_exactly_once(lake, sent + more, good={})


def test_landing_evolves_the_schema(lake: Lake, spark: SparkSession) -> None:
    topic = f"{lake.topic}-orders"
    write_pipeline(lake, "shop", {"orders": "id INT NOT NULL, old STRING NOT NULL, who STRUCT<a: INT>"}, partitions=1)
    make_topic(lake.servers, topic)
    produce(lake.servers, topic, [b'{"id":1,"old":"x","who":{"a":1},"new":"early"}'])
    lake.land(spark, lake.pipeline("shop"))
    write_pipeline(
        lake, "shop", {"orders": "id BIGINT NOT NULL, new STRING NOT NULL, who STRUCT<b: INT, a: INT>"}, partitions=1
    )
    produce(lake.servers, topic, [b'{"id":3000000000,"new":"y","who":{"b":2,"a":3}}', b'{"id":2}'])
    lake.land(spark, lake.pipeline("shop"))
    columns = ("id", "old", "new", "who", "_extra")
    rows = sorted(lake.rows("shop.orders", *columns), key=lambda row: row["id"])
    assert [tuple(row[name] for name in columns) for row in rows] == [
        (1, "x", None, {"a": 1, "b": None}, '{"new":"early"}'),
        (3_000_000_000, None, "y", {"a": 3, "b": 2}, None),
    ]
    assert [row["reason"].split(":")[0] for row in lake.quarantine("shop.orders")] == ["wrong type"]
    check_verified(lake, lake.pipeline("shop"))
    write_pipeline(lake, "shop", {"orders": "id STRING"}, partitions=1)
    with pytest.raises(SpecError, match="incompatible schema change of table"):
        lake.land(spark, lake.pipeline("shop"))


def test_landing_writes_to_the_configured_output_and_commit_log(lake: Lake, spark: SparkSession, tmp_path: Path) -> None:
    make_topic(lake.servers, lake.topic)
    produce(lake.servers, lake.topic, lineage_values(100, seed=1, bad_every=50))
    pipeline = lake.pipeline(OUTPUT_PATH=str(tmp_path / "out"), WRITE_AHEAD_COMMIT_LOG_PATH=f"file://{tmp_path}/log")
    lake.land(spark, pipeline)
    check_verified(lake, pipeline)
    files = sorted(tmp_path.glob("out/year=*/month=*/day=*/hour=*/part-*.parquet"))
    assert sum(pq.read_metadata(file).num_rows for file in files) == 98
    assert sorted(tmp_path.rglob("*.parquet")) == sorted([*files, *lake.home.rglob("metadata/**/*.parquet")])
    entries = read_log(f"file://{tmp_path}/log")
    assert {entry.s3_key for entry in entries} >= {f"file://{file}" for file in files}
    assert [path.relative_to(tmp_path).as_posix() for path in (tmp_path / "log").rglob("*.csv")] == ["log/chk-1/subtask-0.csv"]


def test_landing_writes_the_layout_of_the_lineage_pipeline(lake: Lake, spark: SparkSession) -> None:
    make_topic(lake.servers, lake.topic)
    produce(lake.servers, lake.topic, lineage_values(300, seed=1, hours=2))
    lake.land(spark)
    table = lake.home / "warehouse" / "lineage" / "events"
    assert sorted({path.parent.relative_to(table).as_posix() for path in table.rglob("part-*.parquet")}) == [
        "output/year=2026/month=02/day=24/hour=19",
        "output/year=2026/month=02/day=24/hour=20",
    ]
    first = (table / "write-ahead-commit-log" / "chk-1" / "subtask-0.csv").read_text().splitlines()
    assert first[0] == "checkpoint_id,s3_key,commit_timestamp"
    assert all(line.startswith("1,file:///") for line in first[1:])
    names = [field.name for field in lake.table("lineage.events").schema().fields]
    assert names == [
        *("uuid", "timestamp", "event_time"),
        *("kafka_topic", "kafka_partition", "kafka_offset", "kafka_timestamp", "checkpoint_id"),
    ]


def test_landing_reads_added_partitions(lake: Lake, spark: SparkSession) -> None:
    admin = make_topic(lake.servers, lake.topic, partitions=1)
    produce(lake.servers, lake.topic, lineage_values(10, seed=1))
    lake.land(spark)
    for grown in admin.create_partitions([NewPartitions(lake.topic, 3)]).values():
        grown.result(20)
    produce(lake.servers, lake.topic, lineage_values(30, seed=2), partitions=3)
    lake.land(spark)
    assert len(lake.rows("lineage.events", "uuid")) == 40
    check_verified(lake)


def test_landing_accepts_invalid_kafka_timestamps(lake: Lake, spark: SparkSession) -> None:
    """A producer sends microseconds instead of milliseconds, into a table that is partitioned by them."""
    topic = f"{lake.topic}-orders"
    write_pipeline(lake, "shop", {"orders": "id INT"}, partitions=1, extra="partition_by: [hours(kafka_timestamp)]")
    make_topic(lake.servers, topic, config={"message.timestamp.after.max.ms": str(2**63 - 1)})
    producer = producer_of(lake.servers)
    producer.produce(topic, b'{"id":1}', timestamp=1_771_963_198_501_000)
    producer.produce(topic, b'{"id":2}', timestamp=1_771_963_198_501)
    producer.flush(20)
    lake.land(spark, lake.pipeline("shop"))
    rows = {row["id"]: row["kafka_timestamp"] for row in lake.rows("shop.orders", "id", "kafka_timestamp")}
    assert rows == {1: None, 2: datetime(2026, 2, 24, 19, 59, 58, 501_000, tzinfo=UTC)}


def test_gap_stops_only_its_stream_until_it_is_accepted(lake: Lake, spark: SparkSession) -> None:
    write_pipeline(lake, "shop", {"orders": "id INT", "refunds": "id INT"}, partitions=1)
    pipeline = lake.pipeline("shop")
    topics = {stream: f"{lake.topic}-{stream}" for stream in ("orders", "refunds")}
    for topic in topics.values():
        admin = make_topic(lake.servers, topic)
        produce(lake.servers, topic, [b'{"id":1}'] * 5)
    lake.land(spark, pipeline)
    for topic in topics.values():
        produce(lake.servers, topic, [b'{"id":2}'] * 5)
    delete_records(admin, topics["orders"], {0: 8})
    with pytest.raises(GapError, match="offsets 5 to 7 of partition 0"):
        lake.land(spark, pipeline)
    assert len(lake.rows("shop.refunds", "id")) == 10, "the other stream goes on"
    assert len(lake.rows("shop.orders", "id")) == 5
    lake.land(spark, pipeline, accept_gaps=True)
    assert sorted(row["kafka_offset"] for row in lake.rows("shop.orders", "kafka_offset")) == [0, 1, 2, 3, 4, 8, 9]
    orders = read_now(lake.settings(), [pipeline])[0].streams[0]
    assert orders.gaps == ((0, 5, 8),)
    check_verified(lake, pipeline)
    assert lake.land(spark, pipeline) == []


def test_gap_is_recorded_without_messages_to_land(lake: Lake, spark: SparkSession) -> None:
    admin = make_topic(lake.servers, lake.topic)
    produce(lake.servers, lake.topic, lineage_values(5, seed=1))
    lake.land(spark)
    produce(lake.servers, lake.topic, lineage_values(5, seed=2))
    delete_records(admin, lake.topic, {0: 10})
    assert lake.land(spark, accept_gaps=True) == []
    assert read_now(lake.settings(), [lake.pipeline()])[0].streams[0].gaps == ((0, 5, 10),)
    produce(lake.servers, lake.topic, lineage_values(5, seed=3))
    lake.land(spark)
    check_verified(lake)


def test_emptied_partition_has_a_gap(lake: Lake, spark: SparkSession) -> None:
    admin = make_topic(lake.servers, lake.topic, partitions=2)
    produce(lake.servers, lake.topic, lineage_values(5, seed=1))
    lake.land(spark)
    produce(lake.servers, lake.topic, lineage_values(20, seed=2), partitions=2)
    delete_records(admin, lake.topic, {1: 4})
    with pytest.raises(GapError, match="offsets 0 to 3 of partition 1"):
        lake.land(spark)


def test_landing_reports_offsets_deleted_between_plan_and_read(
    lake: Lake, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tasks fail, the batch can be retried, and the next plan reports the gap."""
    admin = make_topic(lake.servers, lake.topic)
    produce(lake.servers, lake.topic, lineage_values(10, seed=1))
    lander = lake.lander()
    lander.land_batch(spark.sparkContext)
    produce(lake.servers, lake.topic, lineage_values(10, seed=2))
    run = lander._run

    def run_too_late(*arguments: Any) -> Any:
        delete_records(admin, lake.topic, {0: 15})
        return run(*arguments)

    monkeypatch.setattr(lander, "_run", run_too_late)
    lander._consumer = (("client.id", "new"), *lander._consumer)  # a reader that has not fetched them already
    with pytest.raises(UnavailableError, match="a landing task failed"):
        lander.land_batch(spark.sparkContext)
    assert lander.land_batch(spark.sparkContext) is None
    assert "offsets 10 to 14" in str(lander.stopped["lineage.events"])
    assert isinstance(lander.stopped["lineage.events"], GapError)


class Away:
    """A catalog with an outage for tables of one name: commits fail; with `done`, every second one succeeds silently."""

    def __init__(self, catalog: Catalog, name: str, *, done: bool) -> None:
        self._catalog, self._name, self._done = catalog, name, done
        self.away, self.tries = True, 0

    def commit_table(self, table: Any, *arguments: Any) -> Any:
        if self.away and table.name()[-1] == self._name:
            self.tries += 1
            if self._done and self.tries % 2 == 0:
                self._catalog.commit_table(table, *arguments)
            raise ConnectionError("no answer")
        return self._catalog.commit_table(table, *arguments)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._catalog, name)


@pytest.mark.parametrize("name", ["events", "quarantine"])
@pytest.mark.parametrize("done", [True, False])
def test_landing_survives_an_outage_of_the_catalog(
    lake: Lake, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, name: str, done: bool
) -> None:
    """With `done`, the last try succeeded and only its response was lost: the same application finds it and continues."""
    monkeypatch.setattr(commit_module, "COMMITS", Backoff(0.1, attempts=2))
    make_topic(lake.servers, lake.topic)
    sent = produce(lake.servers, lake.topic, lineage_values(100, seed=1, bad_every=10))
    lander = lake.lander()
    away = Away(lake.catalog, name, done=done)
    lander._commits._catalog = away  # type: ignore[assignment]
    with pytest.raises(UnavailableError):
        lander.land_batch(spark.sparkContext)
    assert away.tries == 2
    away.away = False
    sent += produce(lake.servers, lake.topic, lineage_values(100, seed=2, bad_every=10))
    while lander.land_batch(spark.sparkContext):
        pass
    check_verified(lake)
    assert len(lake.rows("lineage.events", "uuid")) == 180
    assert len(lake.quarantine("lineage.events")) == 20
    assert read_ledger(lake.table("lineage.events")).quarantined == 20


class Late(Away):
    """A catalog that carries out a commit without a response, just before the next one that it responds to."""

    late: Callable[[], object] | None = None

    def commit_table(self, table: Any, *arguments: Any) -> Any:
        if self.away and table.name()[-1] == self._name:
            self.late = lambda: self._catalog.commit_table(table, *arguments)
        elif self.late is not None:
            self.late()
            self.late = None
        return super().commit_table(table, *arguments)


def test_landing_finds_a_late_commit_of_its_own(lake: Lake, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit_module, "COMMITS", Backoff(0.1, attempts=2))
    make_topic(lake.servers, lake.topic)
    produce(lake.servers, lake.topic, lineage_values(100, seed=1))
    lander = lake.lander()
    late = Late(lake.catalog, "events", done=False)
    lander._commits._catalog = late  # type: ignore[assignment]
    with pytest.raises(UnavailableError):
        lander.land_batch(spark.sparkContext)
    late.away = False
    produce(lake.servers, lake.topic, lineage_values(100, seed=2))
    with pytest.raises(RetryableError, match="succeeded after its response was lost"):
        lander.land_batch(spark.sparkContext)
    assert lander.land_batch(spark.sparkContext) is not None
    assert lander.land_batch(spark.sparkContext) is None
    check_verified(lake)
    assert len(lake.rows("lineage.events", "uuid")) == 200


def test_spark_sql_reads_landed_tables(lake: Lake, spark: SparkSession) -> None:
    make_topic(lake.servers, lake.topic, partitions=2)
    values = lineage_values(200, seed=4, bad_every=40)
    produce(lake.servers, lake.topic, values, partitions=2)
    lake.land(spark)
    name = "lake_of_this_test"
    spark.conf.set(f"spark.sql.catalog.{name}", "org.apache.iceberg.spark.SparkCatalog")
    spark.conf.set(f"spark.sql.catalog.{name}.type", "hadoop")
    spark.conf.set(f"spark.sql.catalog.{name}.warehouse", lake.settings().warehouse)
    for table in ("lineage.events", "metadata.quarantine"):
        # The JDBC catalog would need a driver that is not among the jars; the Hadoop catalog finds the metadata by its name.
        where = local_path(lake.table(table).metadata_location)
        assert where
        shutil.copy(where, where.with_name("v1.metadata.json"))
        where.with_name("version-hint.text").write_text("1")
    count, first = spark.sql(
        f"SELECT count(*), min(timestamp) FROM {name}.lineage.events WHERE event_time IS NOT NULL"
    ).collect()[0]
    good = [event for value, event in zip(values, lineage_events(200, seed=4), strict=True) if value and len(value) > 20]
    assert (count, first) == (len(good), min(event["timestamp"] for event in good))  # type: ignore[type-var]
    refused = spark.sql(f"SELECT base64(original_bytes) FROM {name}.metadata.quarantine").collect()
    assert sorted(base64.b64decode(row[0]) for row in refused) == sorted(
        value for value in values if value and len(value) == 20
    )


def test_land_once_ends_while_messages_keep_arriving(lake: Lake, spark: SparkSession) -> None:
    make_topic(lake.servers, lake.topic, partitions=10)
    produce(lake.servers, lake.topic, lineage_values(100, seed=1), partitions=10)
    lander = lake.lander()
    ends = lander.ends()
    produce(lake.servers, lake.topic, lineage_values(50, seed=2), partitions=10)
    batch = lander.land_batch(spark.sparkContext, until=ends)
    assert batch is not None
    assert [(part.rows, part.bad) for part in batch.landed] == [(100, 0)]
    assert lander.land_batch(spark.sparkContext, until=ends) is None
    assert lake.verify()[0].waiting == 50
