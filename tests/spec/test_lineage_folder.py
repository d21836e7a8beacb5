"""The folder of the lineage pipeline: its spec, generator and sample, and the cost of a check."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import time
from datetime import datetime, timedelta, timezone
from itertools import islice
from pathlib import Path
from random import Random
from uuid import UUID

import pytest

from headrace.spec import Column, EventTime, Pipeline, Primitive, Transform, check_pipeline, load_pipeline

START = datetime(2026, 2, 24, 20, 0, tzinfo=timezone.utc)


@pytest.fixture
def lineage(tmp_path: Path) -> Pipeline:
    return load_pipeline("lineage", environ={}, folder=tmp_path)


def test_lineage_pipeline_has_its_settings(lineage: Pipeline) -> None:
    (stream,) = lineage.streams
    assert (stream.topic, stream.partitions, stream.format, str(stream.table)) == (
        "lineage-input",
        10,
        "avro",
        "lineage.events",
    )
    assert stream.columns == (
        Column("uuid", Primitive("string"), required=True),
        Column("timestamp", Primitive("long"), required=True),
    )
    assert stream.event_time == EventTime("event_time", "timestamp", "ms")
    assert stream.partition_by == (Transform("hours", "event_time"),)
    assert (stream.output, stream.commit_log) == (None, None)


def test_lineage_pipeline_reads_its_variables(tmp_path: Path) -> None:
    environ = {"KAFKA_TOPIC": "t", "OUTPUT_PATH": "s3://b/out", "WRITE_AHEAD_COMMIT_LOG_PATH": "s3://b/log"}
    (stream,) = load_pipeline("lineage", environ=environ, folder=tmp_path).streams
    assert (stream.topic, stream.output, stream.commit_log) == ("t", "s3://b/out", "s3://b/log")


def generate(lineage: Pipeline, seed: int, count: int) -> list[dict[str, object]]:
    path = lineage.streams[0].generator
    assert path
    spec = importlib.util.spec_from_file_location("lineage_events", path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    ticks = iter(range(count))
    return list(islice(module.events(Random(seed), lambda: START + timedelta(milliseconds=next(ticks))), count))


def test_lineage_generator_is_deterministic(lineage: Pipeline) -> None:
    events = generate(lineage, 1, 100)
    assert events == generate(lineage, 1, 100)
    assert events != generate(lineage, 2, 100)
    assert [event["timestamp"] for event in events] == [1771963200000 + n for n in range(100)]
    assert len({UUID(str(event["uuid"])) for event in events}) == 100
    assert {UUID(str(event["uuid"])).version for event in events} == {4}


def test_lineage_expected_rows_match_the_sample(lineage: Pipeline) -> None:
    sample, expected = (
        [json.loads(line) for line in (lineage.folder / name / "events.jsonl").read_text(encoding="utf-8").splitlines()]
        for name in ("sample", "expected")
    )
    assert len(sample) == 30
    for index, (event, row) in enumerate(zip(sample, expected, strict=True)):
        moment = datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(milliseconds=event["timestamp"])
        assert row == {
            **event,
            "event_time": moment.replace(tzinfo=None).isoformat(timespec="microseconds") + "Z",
            "kafka_topic": "lineage-input",
            "kafka_partition": index % 10,
            "kafka_offset": index // 10,
        }


def test_check_is_fast(tmp_path: Path) -> None:
    started = time.process_time()
    assert check_pipeline("lineage", environ={}, folder=tmp_path).errors == ()
    assert time.process_time() - started < 0.2


def test_importing_the_spec_loads_no_heavy_module() -> None:
    heavy = ("pyspark", "pyarrow", "pyiceberg", "sqlglot", "duckdb", "polars", "fastavro", "confluent_kafka")
    code = (
        "import sys, pathlib, headrace.spec as spec\n"
        "assert not spec.check_pipeline('lineage', environ={}, folder=pathlib.Path.cwd()).errors\n"
        f"print([name for name in {heavy!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
