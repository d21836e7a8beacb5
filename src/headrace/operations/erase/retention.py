"""For how long Kafka keeps what a table no longer has."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.errors import UnavailableError
from headrace.kafka.topics import admin_client, list_retention
from headrace.servers.kafka import find_servers
from headrace.settings import Settings

_DAY_MS = 86_400_000


def kept_by_kafka(settings: Settings, topics: Sequence[str]) -> dict[str, str]:
    """Return in words how long each topic keeps a message, as far as Kafka can be asked now."""
    ask = "Kafka is off; its setting retention.ms says how long"
    servers = find_servers(settings) if topics else None
    if servers is None:
        return dict.fromkeys(topics, ask)
    try:
        found = list_retention(admin_client(servers), topics)
    except UnavailableError:
        return dict.fromkeys(topics, ask)
    return {topic: _in_words(found[topic]) if topic in found else "is not there" for topic in topics}


def _in_words(milliseconds: int | None) -> str:
    if milliseconds is None:
        return "keeps messages for ever: delete them there, or set retention.ms"
    return f"keeps messages for {milliseconds / _DAY_MS:,.1f} days; what was landed of them does not land again"
