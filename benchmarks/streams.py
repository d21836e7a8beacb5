"""The streams that are landed, as Headrace describes them; plain Spark works from the same files."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from headrace.spec.loading.avro import parse_avro
from headrace.spec.loading.ddl import parse_ddl
from headrace.spec.model.pipeline import EventTime, Pipeline, Stream, TableName, Transform
from headrace.spec.problems import Place, Problems

Kind = Literal["charges", "lineage"]
NAMESPACE = "bench"
_FOLDER = Path(__file__).parent
CHARGES_DDL = (_FOLDER / "schemas" / "charges.sql").read_text(encoding="utf-8")
LINEAGE_AVRO = (_FOLDER / "schemas" / "lineage.avsc").read_text(encoding="utf-8")


def pipeline_of(kind: Kind, topics: dict[str, str], *, partitions: int) -> Pipeline:
    """Return a pipeline that lands each topic in its table."""
    streams = tuple(_stream(kind, topic, table, partitions=partitions) for topic, table in topics.items())
    return Pipeline(name="bench", about="What the benchmark lands.", folder=_FOLDER, streams=streams)


def _stream(kind: Kind, topic: str, table: str, *, partitions: int) -> Stream:
    name = TableName(NAMESPACE, table)
    if kind == "charges":
        return Stream(
            name=table,
            topic=topic,
            partitions=partitions,
            format="json",
            columns=parse_ddl(CHARGES_DDL, place=Place("charges.sql", "bench"), problems=Problems()),
            table=name,
            partition_by=(Transform("days", "created_at"),),
        )
    return Stream(
        name=table,
        topic=topic,
        partitions=partitions,
        format="avro",
        columns=parse_avro(LINEAGE_AVRO, place=Place("lineage.avsc", "bench"), problems=Problems()),
        table=name,
        partition_by=(Transform("hours", "event_time"),),
        event_time=EventTime("event_time", "timestamp", "ms"),
        avro_schema=LINEAGE_AVRO,
    )
