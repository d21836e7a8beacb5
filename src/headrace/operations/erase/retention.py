"""Report how long Kafka keeps erased messages."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.errors import UnavailableError
from headrace.kafka.topics import admin_client, list_retention
from headrace.servers.kafka import find_servers
from headrace.settings import Settings

_DAY_MS = 86_400_000


def describe_retention(settings: Settings, topics: Sequence[str]) -> dict[str, str]:
    """Return a sentence about the retention of each topic, or a hint if Kafka is unavailable."""
    unknown = "Kafka is unavailable; see its setting retention.ms"
    servers = find_servers(settings) if topics else None
    if servers is None:
        return dict.fromkeys(topics, unknown)
    try:
        retention = list_retention(admin_client(servers), topics)
    except UnavailableError:
        return dict.fromkeys(topics, unknown)
    return {topic: _in_words(retention[topic]) if topic in retention else "does not exist" for topic in topics}


def _in_words(milliseconds: int | None) -> str:
    if milliseconds is None:
        return "keeps messages for ever: delete them in Kafka, or set retention.ms"
    return f"keeps messages for {milliseconds / _DAY_MS:,.1f} days; landed messages do not land again"
