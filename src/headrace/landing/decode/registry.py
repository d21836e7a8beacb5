"""The schema registry of a task: which schema a message was written with."""

from __future__ import annotations

from functools import lru_cache

from headrace.kafka.schemas import Registry


@lru_cache(maxsize=8)
def registry_of_this_worker(url: str) -> Registry:
    """Return the registry that this Python worker keeps between batches."""
    return Registry(url)
