"""The highest rate that the mart keeps up with: its median stays under 10 seconds for three minutes."""

from __future__ import annotations

from dataclasses import asdict

from benchmarks.bench import Bench
from benchmarks.mart import measure_rate
from benchmarks.results import Bar, at_least

RATES = (1_000, 2_000, 3_500, 5_000, 7_500)
LEAST_RATE, MOST_MEDIAN = 5_000, 10.0
_WARM_UP_SECONDS = 180
_SECONDS = 180


def measure_sustained(bench: Bench) -> tuple[list[dict[str, object]], tuple[Bar, ...]]:
    """Return what was measured at each rate, up to the first that is too high."""
    rows: list[dict[str, object]] = []
    best = 0
    for rate in RATES:
        try:
            measured = measure_rate(bench, rate, warm_up=_WARM_UP_SECONDS, seconds=_SECONDS)
        except RuntimeError as error:
            bench.say(f"Sustained: {rate:,} events/s: {error}")
            break
        rows.append(asdict(measured))
        if measured.median_seconds > MOST_MEDIAN:
            break
        best = rate
    return rows, (at_least(LEAST_RATE, best, name="events/s with a median to the mart under 10 s"),)
