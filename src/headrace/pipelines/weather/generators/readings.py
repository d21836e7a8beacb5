"""What the thermometers of ten cities send: each city in its turn, around a temperature of its own that wanders."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from random import Random

USUAL = {
    "San Francisco": 62.0,
    "New York": 68.0,
    "Los Angeles": 75.0,
    "Chicago": 60.0,
    "Houston": 84.0,
    "Phoenix": 98.0,
    "Seattle": 57.0,
    "Denver": 64.0,
    "Miami": 88.0,
    "Boston": 61.0,
}
"""The ten cities, in degrees Fahrenheit."""
COLDEST, HOTTEST = 0.0, 120.0


def events(random: Random, now: Callable[[], datetime]) -> Iterator[dict[str, object]]:
    """Yield readings without end; the same `random` gives the same ones. When they were taken, the server says."""
    temperatures = dict(USUAL)
    while True:
        for city, usual in USUAL.items():
            drift = (usual - temperatures[city]) * 0.05
            moved = temperatures[city] + drift + random.gauss(0.0, 1.2)
            temperatures[city] = min(HOTTEST, max(COLDEST, moved))
            yield {"city": city, "temperature": f"{temperatures[city]:.2f}"}
