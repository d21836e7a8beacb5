"""The topics of pipelines: they exist from the first command on that has a Kafka for them."""

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
from headrace.spec.model.pipeline import Stream


def make_topics(settings: Settings, servers: KafkaServers, streams: Iterable[Stream]) -> None:
    """Make the topics of streams that are missing.

    On the embedded broker a topic with fewer partitions than its stream says, such as one that a producer's first message made,
    gets the others. A topic of your own Kafka is left as it is: more partitions would send its keys elsewhere.
    """
    wanted: dict[str, int] = {}
    for stream in streams:
        wanted[stream.topic] = max(stream.partitions, wanted.get(stream.topic, 0))
    ensure_topics(admin_client(servers), wanted, grow=own_servers(settings) is None)


def make_topics_here(settings: Settings, *, environ: Mapping[str, str], folder: Path, report: Report) -> None:
    """Make the topics of all pipelines in a folder; those that come with Headrace get theirs when they first run."""
    servers = find_servers(settings)
    if servers is None:
        return
    streams: list[Stream] = []
    for found in list_pipelines(folder):
        if found.built_in:
            continue
        try:
            streams += load_pipeline(found.name, environ=environ, folder=folder).streams
        except HeadraceError:
            report(f"{found.name} can't be loaded, so its topics were not created. Run: headrace check {found.name}")
    make_topics(settings, servers, streams)
