"""Plays a provider: numbered deliveries, of which some come again, as after an answer that got lost."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from random import Random

from .world import PROBLEMS, Json, World

REMEMBERED = 40
AGAIN_EVERY = 20
"""Of so many deliveries one is sent again, right after."""

Make = Callable[[World, int, datetime, "Memory"], Json]


class Memory:
    """When each of the last things was created, by its number; for one that was created before we started, now."""

    def __init__(self) -> None:
        self._moments: dict[int, datetime] = {}

    def born(self, number: int, now: datetime) -> datetime:
        moment = self._moments.setdefault(number, now)
        while len(self._moments) > REMEMBERED:
            del self._moments[next(iter(self._moments))]
        return moment


def play(
    make: Make,
    again: Callable[[Json], Json],
    random: Random,
    now: Callable[[], datetime],
    problems: Mapping[str, float] | None,
    start: int,
) -> Iterator[Json]:
    """Yield deliveries number `start` and up; every twentieth is one of those before it, sent `again`."""
    world, memory, last = World.of(random, PROBLEMS, problems), Memory(), deque[Json](maxlen=3)
    number = start
    while True:
        moment = now()
        if number % AGAIN_EVERY == AGAIN_EVERY - 1 and last:
            yield again(last[0])
        else:
            last.append(make(world, number, moment, memory))
            yield last[-1]
        number += 1
