"""The whole way of a newcomer, with commands alone: demo, query, commits, verify, generate, status, up and down."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pyarrow.dataset as ds
import pytest

from tests.application import Application, start_headrace

pytestmark = [pytest.mark.services, pytest.mark.spark]

EVENTS = 200


class Folder:
    """A working folder in which commands are typed one after the other."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.environ = {"HEADRACE_HOME": str(path / ".headrace")}

    def run(self, *arguments: str, code: int = 0) -> str:
        application: Application = start_headrace(*arguments, environ=self.environ, folder=self.path)
        ended = application.wait(seconds=120)
        assert ended == code, f"{arguments} ended with {ended}:\n{application.said()}"
        return application.said()


def test_the_whole_way(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    assert "Kafka is ready" in folder.run("up")
    try:
        _check_demo(folder)
        _check_generate(folder)
        _check_doubling(folder)
    finally:
        assert "Kafka is stopped" in folder.run("down")
    assert "nothing was running" in folder.run("down")


def _check_demo(folder: Folder) -> None:
    said = folder.run("demo", "lineage", "--events", str(EVENTS), "--exit")
    assert f"{EVENTS} events are in topic lineage-input" in said
    assert f"lineage.events  checkpoint 1  {EVENTS} rows  0 bad" in said
    assert json.loads(folder.run("query", "SELECT count(*) AS n FROM lineage.events", "--json")) == [{"n": EVENTS}]
    lines = list(csv.DictReader(io.StringIO(folder.run("query", "SELECT uuid, kafka_offset FROM lineage.events", "--csv"))))
    assert len({line["uuid"] for line in lines}) == EVENTS
    files = json.loads(folder.run("commits", "lineage", "--checkpoint", "1", "--json"))
    assert {file["state"] for file in files} == {"committed"}
    assert sum(file["rows"] for file in files) == EVENTS
    assert json.loads(folder.run("commits", "lineage", "--checkpoint", "2", "--json")) == []
    output = folder.path / ".headrace" / "warehouse" / "lineage" / "events" / "output"
    assert all(path.match("year=*/month=*/day=*/hour=*/part-*.parquet") for path in output.rglob("*.parquet"))
    plain = ds.dataset(output, partitioning="hive").to_table()
    assert plain.num_rows == EVENTS
    assert {"uuid", "timestamp", "kafka_topic", "kafka_partition", "kafka_offset", "checkpoint_id", "hour"} <= set(
        plain.column_names
    )


def _check_generate(folder: Folder) -> None:
    assert "300 events are acknowledged" in folder.run("generate", "lineage", "--rate", "0", "--count", "300", "--seed", "7")
    status = json.loads(folder.run("status", "lineage", "--json"))
    assert status["services"][0]["state"] == "running"
    assert (status["streams"][0]["rows"], status["streams"][0]["lag"]) == (EVENTS, 300)
    verified = json.loads(folder.run("verify", "lineage", "--json"))[0]
    assert (verified["in_topic"], verified["landed"], verified["waiting"], verified["holds"]) == (
        EVENTS + 300,
        EVENTS,
        300,
        True,
    )
    folder.run("land", "lineage", "--once")
    verified = json.loads(folder.run("verify", "lineage", "--json"))[0]
    assert (verified["landed"], verified["waiting"], verified["missing"]) == (EVENTS + 300, 0, 0)


def _check_doubling(folder: Folder) -> None:
    """A file that someone commits a second time is found, and so is one that is taken away."""
    from headrace.settings import load_settings
    from headrace.tables.catalog import open_catalog

    catalog = open_catalog(load_settings(flags={}, environ=folder.environ, folder=folder.path))
    table = catalog.load_table("lineage.events")
    paths = table.inspect.files().column("file_path").to_pylist()
    table.add_files([paths[0]], check_duplicate_files=False)
    said = folder.run("verify", "lineage", code=1)
    assert "doubled: lineage-input[" in said
    catalog.load_table("lineage.events").delete("kafka_partition = 3")
    verified = json.loads(folder.run("verify", "lineage", "--json", code=1))[0]
    assert verified["missing"] == (EVENTS + 300) // 10
