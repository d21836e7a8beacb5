"""Orders, as Shopify sends them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from random import Random

from .playing import play
from .shopify import again, order_delivery
from .world import PROBLEMS, Json

__all__ = ["PROBLEMS", "events"]


def events(
    random: Random, now: Callable[[], datetime], problems: Mapping[str, float] | None = None, start: int = 0
) -> Iterator[Json]:
    """Return webhooks number `start` and up, without end: their headers without the signature, and their body."""
    return play(order_delivery, again, random, now, problems, start)
