"""Read erasure requests from a stream, such as Shopify's `customers/redact`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyiceberg.catalog import Catalog
from pyspark.sql import functions as F  # noqa: N812

from headrace.iceberg.catalog.spark import spark_name
from headrace.operations.erase.identifiers import Identifiers, identify
from headrace.operations.erase.matching import values_of
from headrace.operations.erase.offsets import stream_offsets_label
from headrace.spec.model.pipeline import ErasureRequests, Pipeline

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Row, SparkSession


@dataclass(frozen=True)
class Request:
    """A row that requests an erasure, and its coordinates. It names the person, so it is erased too."""

    id: str
    stream: str
    partition: int
    offset: int
    person: Identifiers


def find_requests(spark: SparkSession, pipeline: Pipeline, asked: ErasureRequests, *, catalog: Catalog) -> tuple[Request, ...]:
    """Return the waiting requests, oldest first. Requests that were carried out are erased."""
    stream = pipeline.stream(asked.stream)
    rows = spark.read.format("iceberg").load(spark_name(stream.table)).where(F.expr(asked.where))
    whose = asked.whose
    chosen = rows.select(
        F.expr(asked.id).cast("string").alias("id"),
        stream_offsets_label(catalog, pipeline, stream).alias("stream"),
        F.col("kafka_partition").alias("partition"),
        F.col("kafka_offset").alias("offset"),
        _all(rows, whose.emails).alias("emails"),
        _all(rows, whose.phones).alias("phones"),
        *(_all(rows, expressions).alias(f"ids_{kind}") for kind, expressions in whose.ids.items()),
    )
    requests = chosen.orderBy("partition", "offset").collect()
    return tuple(_request(row, tuple(whose.ids)) for row in requests)


def count_requests(spark: SparkSession, pipeline: Pipeline, asked: ErasureRequests, *, after: int) -> int:
    """Return the number of requests after a checkpoint."""
    stream = pipeline.stream(asked.stream)
    rows = spark.read.format("iceberg").load(spark_name(stream.table))
    return rows.where(F.col("checkpoint_id") > after).where(F.expr(asked.where)).count()


def _all(rows: DataFrame, expressions: tuple[str, ...]) -> Column:
    empty = F.array().cast("array<string>")
    return F.concat(empty, *(F.coalesce(values_of(rows, expression), empty) for expression in expressions))


def _request(row: Row, kinds: tuple[str, ...]) -> Request:
    person = identify(
        emails=row["emails"], phones=row["phones"], ids=[(kind, value) for kind in kinds for value in row[f"ids_{kind}"]]
    )
    return Request(str(row["id"]), row["stream"], row["partition"], row["offset"], person)
