"""Create the topics of pipelines as soon as a command has a Kafka for them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from headrace.errors import HeadraceError
from headrace.kafka.client import KafkaServers, own_servers
from headrace.kafka.topics import admin_client, ensure_topics
from headrace.servers.embedded import Report
from headrace.servers.kafka import find_servers
from headrace.settings import Settings
from headrace.spec import list_pipelines, load_pipeline
from headrace.spec.model.pipeline import Stream, configs_of


def make_topics(settings: Settings, servers: KafkaServers, streams: Iterable[Stream]) -> None:
    """Create the missing topics of streams, with the settings that these declare.

    On the embedded broker, a topic with fewer partitions than its stream declares gets more, for example after a producer's
    first message created it. Topics of your own Kafka are not changed: more partitions would move its keys.
    """
    streams = tuple(streams)
    wanted: dict[str, int] = {}
    for stream in streams:
        wanted[stream.topic] = max(stream.partitions, wanted.get(stream.topic, 0))
    ensure_topics(admin_client(servers), wanted, configs=configs_of(streams), grow=own_servers(settings) is None)


def make_topics_here(settings: Settings, *, environ: Mapping[str, str], folder: Path, report: Report) -> None:
    """Create the topics of all pipelines in a folder. Built-in pipelines create theirs when they first run."""
    servers = find_servers(settings)
    if servers is None:
        return
    streams: list[Stream] = []
    for listed in list_pipelines(folder):
        if listed.built_in:
            continue
        try:
            streams += load_pipeline(listed.name, environ=environ, folder=folder).streams
        except HeadraceError:
            report(f"{listed.name} can't be loaded, so its topics were not created. Run: headrace check {listed.name}")
    make_topics(settings, servers, streams)
