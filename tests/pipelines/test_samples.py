"""Every pipeline's sample becomes what is expected, through a real topic and a real landing."""

from __future__ import annotations

import json
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headrace.sources.encode import encoder_of
from headrace.spec import list_pipelines
from headrace.spec.folders import BUILT_IN
from headrace.spec.pipeline import Stream
from tests.lake import Lake, check_verified
from tests.topics import make_topic, produce

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.services, pytest.mark.spark]

NAMES = [found.name for found in list_pipelines(BUILT_IN) if found.built_in]


def values_of(stream: Stream, path: Path) -> list[bytes]:
    """Gives back a sample as messages: a JSON line is one as it stands, an Avro event is encoded."""
    lines = path.read_text(encoding="utf-8").splitlines()
    if stream.format == "json":
        return [line.encode() for line in lines]
    return [encoder_of(stream)(json.loads(line)) for line in lines]


def as_json(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat(timespec="microseconds").replace("+00:00", "Z")
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, dict):
        return {name: as_json(inner) for name, inner in value.items()}
    return value


@pytest.mark.parametrize("name", NAMES)
def test_the_sample_becomes_what_is_expected(name: str, lake: Lake, spark: SparkSession) -> None:
    pipeline = lake.pipeline(name)
    for stream in pipeline.streams:
        make_topic(lake.servers, stream.topic, partitions=stream.partitions)
        sample = values_of(stream, pipeline.folder / "sample" / f"{stream.name}.jsonl")
        produce(lake.servers, stream.topic, sample, partitions=stream.partitions)
    lake.land(spark, pipeline)
    for stream in pipeline.streams:
        lines = (pipeline.folder / "expected" / f"{stream.name}.jsonl").read_text(encoding="utf-8").splitlines()
        expected = [{**json.loads(line), "kafka_topic": stream.topic} for line in lines]
        landed = [as_json(row) for row in lake.rows(str(stream.table), *expected[0])]
        in_order = [{column: row[column] for column in expected[0]} for row in landed]
        assert sorted(in_order, key=str) == sorted(expected, key=str)
    check_verified(lake, pipeline)
