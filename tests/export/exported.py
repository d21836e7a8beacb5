"""Exported pipelines for any orchestrator: one on its sample, one whose data breaks, one that no longer exists."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from headrace.servers.kafka import start_kafka, stop_kafka
from headrace.settings import load_settings
from headrace.spec import Pipeline
from headrace.spec.model.pipeline import TableName
from tests.support.lake import Lake
from tests.support.samples import values_of
from tests.support.shop import write_shop
from tests.support.topics import make_topic, produce

RETRIES = 1
GONE = "gone"
BROKEN = TableName("staging", "charges")
SECONDS_A_TABLE = 120.0
CHARGE = {"id": "c1", "at": 1, "amount": 9.5, "customerId": None, "status": "paid", "country": "DE", "metadata": {"ip": None}}


@dataclass(frozen=True)
class Exported:
    """The exported pipelines. The valid one's sample is landed, the broken one's is in its topic. `environ` is for the tool."""

    lake: Lake
    sound: Pipeline
    broken: Pipeline
    environ: dict[str, str]


@contextmanager
def exported(name: str, *, to: str, folder: Path, gone: Sequence[str]) -> Iterator[Exported]:
    """Yield the three pipelines, exported to a folder. `gone` are the arguments of the third."""
    settings = load_settings(flags={}, environ={}, folder=folder)
    lake = Lake(folder, start_kafka(settings, detached=False, report=print).bootstrap_servers, "lineage-input")
    write_shop(folder)
    try:
        sound, broken = lake.pipeline(name), lake.pipeline("shop")
        for stream in sound.streams:
            make_topic(lake.servers, stream.topic, partitions=stream.partitions)
            sample = values_of(stream, sound.folder / "sample" / f"{stream.name}.jsonl")
            produce(lake.servers, stream.topic, sample, partitions=stream.partitions)
        make_topic(lake.servers, broken.streams[0].topic)
        produce(lake.servers, broken.streams[0].topic, [json.dumps(CHARGE).encode()])
        assert lake.start("land", name, "--once").wait(seconds=300) == 0
        print(lake.run("export", to, name), end="")
        print(lake.run("export", to, "shop", "--land", "--retries", str(RETRIES)), end="")
        shutil.copytree(broken.folder, folder / GONE / "shop")
        print(lake.run("export", to, f"{GONE}/shop", *gone), end="")
        shutil.rmtree(folder / GONE)
        command = os.environ.get("HEADRACE_COMMAND") or str(Path(sys.executable).with_name("headrace"))
        yield Exported(lake, sound, broken, {**lake.environ, "HEADRACE_COMMAND": command})
    finally:
        for application in lake.applications:
            application.end()
        stop_kafka(settings)


def not_reached(pipeline: Pipeline) -> set[TableName]:
    """Return the table that breaks and all of its downstream tables."""
    affected = {BROKEN}
    for table in pipeline.tables:
        if affected & {*table.inputs}:
            affected.add(table.table)
    return affected
