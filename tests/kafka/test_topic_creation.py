"""Topics exist before they are needed: the first message or the first command creates them with their stream's partitions."""

from __future__ import annotations

from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING

import pytest

from headrace.app.topics import open_topics
from headrace.kafka.client import KafkaServers
from headrace.kafka.topics import admin_client, ensure_topics, list_configs, list_partitions
from headrace.sessions.landing import Session, land
from headrace.sessions.own_topics import make_topics, make_topics_here
from headrace.settings import load_settings
from headrace.spec import load_pipeline
from tests.support.folders import write_files
from tests.support.lake import Lake
from tests.support.topics import make_topic, produce

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.services

PIPELINE = """\
name: {name}
about: a test
streams:
  events: {{topic: {name}-events, partitions: 3, format: json, schema: schemas/event.sql, table: raw.{name}}}
"""


def write_pipeline(folder: Path, name: str, text: str = PIPELINE) -> None:
    files = {"pipeline.yml": text.format(name=name), "schemas/event.sql": "n BIGINT"}
    write_files(folder / "pipelines" / name, files)


def partitions_of(servers: str, topic: str) -> int:
    return len(list_partitions(admin_client(KafkaServers(servers))).get(topic, ()))


def test_make_topics_adds_partitions_to_an_auto_created_topic(broker: str, tmp_path: Path) -> None:
    write_pipeline(tmp_path, "early")
    streams = load_pipeline("early", environ={}, folder=tmp_path).streams
    sent = produce(broker, "early-events", [b'{"n": 1}', b'{"n": 2}'])
    assert [(message.partition, message.offset) for message in sent] == [(0, 0), (0, 1)]
    assert partitions_of(broker, "early-events") == 1
    for _ in range(2):
        make_topics(load_settings(flags={}, environ={}, folder=tmp_path), KafkaServers(broker), streams)
        assert partitions_of(broker, "early-events") == 3


def test_make_topics_changes_no_foreign_or_larger_topic(broker: str, tmp_path: Path) -> None:
    write_pipeline(tmp_path, "theirs")
    streams = load_pipeline("theirs", environ={}, folder=tmp_path).streams
    make_topic(broker, "theirs-events", partitions=2)
    own = load_settings(flags={}, environ={"KAFKA_BOOTSTRAP_SERVERS": broker}, folder=tmp_path)
    make_topics(own, KafkaServers(broker), streams)
    assert partitions_of(broker, "theirs-events") == 2
    ensure_topics(admin_client(KafkaServers(broker)), {"theirs-events": 1}, grow=True)
    assert partitions_of(broker, "theirs-events") == 2


def test_new_topics_get_the_settings_of_their_streams(broker: str, tmp_path: Path) -> None:
    declared = "retention: 7 days, cleanup_policy: 'compact,delete', delete_retention: 1 hour, format: json"
    write_pipeline(tmp_path, "declared", PIPELINE.replace("format: json", declared))
    write_pipeline(tmp_path, "forever", PIPELINE.replace("format: json", "retention: forever, format: json"))
    settings = load_settings(flags={}, environ={"KAFKA_BOOTSTRAP_SERVERS": broker}, folder=tmp_path)
    pipelines = [load_pipeline(name, environ={}, folder=tmp_path) for name in ("declared", "forever")]
    for pipeline in pipelines:
        make_topics(settings, KafkaServers(broker), pipeline.streams)
    configs = list_configs(admin_client(KafkaServers(broker)), ["declared-events", "forever-events", "missing"])
    expected = {"retention.ms": "604800000", "cleanup.policy": "compact,delete", "delete.retention.ms": "3600000"}
    assert expected.items() <= configs["declared-events"].items()
    assert configs["forever-events"]["retention.ms"] == "-1"
    assert sorted(configs) == ["declared-events", "forever-events"]
    assert open_topics(settings, pipelines).one("declared-events").differences == ()
    later = PIPELINE.replace("format: json", "retention: 1 day, format: json")
    write_pipeline(tmp_path, "declared", later)
    changed = load_pipeline("declared", environ={}, folder=tmp_path)
    make_topics(settings, KafkaServers(broker), changed.streams)
    service = open_topics(settings, [changed])
    difference = "retention.ms is 604800000, and pipeline.yml says 86400000"
    assert service.one("declared-events").differences == (difference,)
    assert [status.differences for status in service.all() if status.name == "declared-events"] == [(difference,)]


def test_make_topics_here_creates_topics_of_all_pipelines(broker: str, tmp_path: Path) -> None:
    for name in ("one", "other"):
        write_pipeline(tmp_path, name)
    write_pipeline(tmp_path, "broken", "streams: [")
    reports: list[str] = []
    settings = load_settings(flags={}, environ={"KAFKA_BOOTSTRAP_SERVERS": broker}, folder=tmp_path)
    make_topics_here(settings, environ={}, folder=tmp_path, report=reports.append)
    assert [partitions_of(broker, f"{name}-events") for name in ("one", "other")] == [3, 3]
    assert reports == ["broken can't be loaded, so its topics were not created. Run: headrace check broken"]


@pytest.mark.spark
def test_land_once_reports_that_there_is_nothing_to_land(lake: Lake, spark: SparkSession) -> None:
    write_pipeline(lake.folder, "idle")
    pipeline = lake.pipeline("idle")

    def land_once() -> tuple[int, list[str]]:
        reports: list[str] = []
        rows: list[int] = []
        session = Session(lake.settings(), pipeline, KafkaServers(lake.servers), lake.lander(pipeline), spark)
        land(
            session,
            once=True,
            stop=Event(),
            landed=lambda batch: rows.append(batch.landed[0].rows),
            report=reports.append,
            nothing=reports.append,
        )
        return sum(rows), reports

    assert land_once() == (0, ["nothing to land: idle-events has no messages yet"])
    produce(lake.servers, "idle-events", [b'{"n": 1}'])
    assert land_once() == (1, [])
    assert land_once() == (0, ["nothing to land: all messages of idle-events have landed"])
