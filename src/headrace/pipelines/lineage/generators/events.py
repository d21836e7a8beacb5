"""Events as small as they get: an id, and the moment in which it was made."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from random import Random
from uuid import UUID

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
MILLISECOND = timedelta(milliseconds=1)


def events(random: Random, now: Callable[[], datetime]) -> Iterator[dict[str, object]]:
    """Yield events without end; the same `random` and `now` give the same events. `now` has a time zone."""
    while True:
        yield {"uuid": str(UUID(int=random.getrandbits(128), version=4)), "timestamp": (now() - EPOCH) // MILLISECOND}
