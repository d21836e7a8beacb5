"""Ports of a test's own."""

from __future__ import annotations

from dataclasses import replace

from headrace.servers.ports import find_free_port
from headrace.settings import Settings


def with_own_ports(settings: Settings) -> Settings:
    """Return settings whose usual ports are free ones: tests beside this one can't take them while a server restarts."""
    return replace(
        settings,
        kafka_port=find_free_port(),
        postgres_port=find_free_port(),
        connect_port=find_free_port(),
        registry_port=find_free_port(),
    )
