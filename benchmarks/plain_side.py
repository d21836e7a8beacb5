"""Plain Spark's side: Spark's Kafka source, from_json or from_avro, and Iceberg's own streaming sink, set up well.

Well means: schemas are given, not inferred; one batch takes all there is; the sink keeps a file open for each partition
(fanout) instead of shuffling or sorting; zstd at the level that Headrace uses; the heap, the collector and the consumer's
fetch sizes that were fastest in trials. The table has the same columns, partitions and catalog database as Headrace's.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql.avro.functions import from_avro
from pyspark.sql.streaming.query import StreamingQuery

from benchmarks.side import Order
from benchmarks.streams import CHARGES_DDL, LINEAGE_AVRO, NAMESPACE
from headrace.servers.jars import resolve_jars
from headrace.servers.java import find_java_home
from headrace.settings import Settings
from headrace.spark.session import start_spark

CATALOG = "headrace"
_HEAP = "2g"
_COLLECTOR = "-XX:+UseParallelGC"
_CONSUMER = {"kafka.max.poll.records": "5000", "kafka.max.partition.fetch.bytes": "4194304"}
_COORDINATES = ("topic", "partition", "offset", "timestamp")
_TABLE = {
    "format-version": "2",
    "write.parquet.compression-codec": "zstd",
    "write.parquet.compression-level": "1",
    "write.distribution-mode": "none",
    "write.spark.fanout.enabled": "true",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "100",
}


class PlainSide:
    def __init__(self, settings: Settings) -> None:
        settings.home.mkdir(parents=True, exist_ok=True)
        self._settings = settings
        logging = (settings.home / "spark-log4j2.properties").as_uri()
        self._spark = start_spark(
            settings,
            java_home=find_java_home(os.environ, cache=settings.home),
            jars=resolve_jars(Path(__file__).parent / "jars", report=lambda line: print(line, file=sys.stderr)),
            conf={
                "spark.driver.memory": _HEAP,
                "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={logging} {_COLLECTOR}",
                "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
                f"spark.sql.catalog.{CATALOG}": "org.apache.iceberg.spark.SparkCatalog",
                f"spark.sql.catalog.{CATALOG}.type": "jdbc",
                f"spark.sql.catalog.{CATALOG}.uri": "jdbc:sqlite:"
                + settings.catalog_uri.removeprefix("sqlite:///")
                + "?journal_mode=WAL&busy_timeout=30000",
                f"spark.sql.catalog.{CATALOG}.warehouse": settings.warehouse,
                f"spark.sql.catalog.{CATALOG}.jdbc.schema-version": "V1",
            },
        )
        self._spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {CATALOG}.{NAMESPACE}")

    def land(self, order: Order) -> None:
        for query in self._start(order, available_now=True):
            query.awaitTermination()

    def follow(self, order: Order) -> None:
        queries = self._start(order, available_now=False)
        sys.stdin.readline()
        for query in queries:
            query.stop()

    def _start(self, order: Order, *, available_now: bool) -> list[StreamingQuery]:
        queries: list[StreamingQuery] = []
        for topic, table in order.topics.items():
            rows = self._decode(order, topic)
            name = f"{CATALOG}.{NAMESPACE}.{table}"
            self._create(order, name, rows)
            writer = rows.writeStream.format("iceberg").outputMode("append").option("fanout-enabled", "true")
            writer = writer.option("checkpointLocation", str(self._settings.home / "checkpoints" / table))
            writer = writer.trigger(availableNow=True) if available_now else writer.trigger(processingTime="0 seconds")
            queries.append(writer.toTable(name))
        return queries

    def _decode(self, order: Order, topic: str) -> DataFrame:
        messages = (
            self._spark.readStream.format("kafka")
            .option("kafka.bootstrap.servers", self._settings.kafka_bootstrap_servers or "")
            .option("subscribe", topic)
            .option("startingOffsets", "earliest")
            .options(**_CONSUMER)
            .load()
        )
        coordinates = [f.col(name).alias(f"kafka_{name}") for name in _COORDINATES]
        names = [f"kafka_{name}" for name in _COORDINATES]
        if order.kind == "charges":
            event = f.from_json(f.col("value").cast("string"), CHARGES_DDL, {"mode": "PERMISSIVE"})
            return messages.select(event.alias("event"), *coordinates).select("event.*", *names)
        event = from_avro("value", LINEAGE_AVRO)
        return messages.select(event.alias("event"), *coordinates).select(
            "event.*", f.timestamp_millis("event.timestamp").alias("event_time"), *names
        )

    def _create(self, order: Order, name: str, rows: DataFrame) -> None:
        columns = ", ".join(f"{column.name} {column.dataType.simpleString()}" for column in rows.schema)
        partition = "days(created_at)" if order.kind == "charges" else "hours(event_time)"
        properties = ", ".join(f"'{key}'='{value}'" for key, value in _TABLE.items())
        self._spark.sql(
            f"CREATE TABLE {name} ({columns}) USING iceberg PARTITIONED BY ({partition}) TBLPROPERTIES ({properties})"
        )
