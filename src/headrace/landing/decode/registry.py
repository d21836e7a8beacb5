"""The schema registry client of a task."""

from __future__ import annotations

from functools import lru_cache

from headrace.kafka.schemas import Registry


@lru_cache(maxsize=8)
def registry_of_this_worker(url: str) -> Registry:
    """Return the registry client that this Python worker reuses between batches."""
    return Registry(url)
