"""Memory: the peak of the whole process tree while Headrace lands a topic, and one four times as long."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.bench import Bench, Topic
from benchmarks.meter import measure
from benchmarks.results import Bar, at_most
from benchmarks.side import Order
from benchmarks.streams import Kind

CASES: tuple[tuple[str, Kind, int], ...] = (("JSON", "charges", 1_000_000), ("Avro", "lineage", 5_000_000))
TIMES = 4
MOST_GROWTH = 1.1
"""Heaps and allocators breathe: two runs over the same events differ by some percent."""


@dataclass(frozen=True)
class Peak:
    """The tree's peak over one landing, in an application that lands nothing else."""

    name: str
    events: int
    peak_mb: int
    seconds: float


def measure_peak(bench: Bench, name: str, kind: Kind, events: int) -> Peak:
    topic = Topic(kind, events)
    bench.fill(topic)
    with bench.start("headrace") as side:
        with measure(side.pid) as reading:
            side.land(Order(kind, {topic.name: "landed"}, topic.partitions))
        if side.count("landed") != events:
            raise RuntimeError(f"{side.count('landed')} rows of {topic.name} landed, and {events} were to land")
        side.drop_data("landed")
    bench.say(f"Memory: {name}, {events:,} events, {reading.peak_bytes / 1e6:,.0f} MB")
    return Peak(name, events, round(reading.peak_bytes / 1e6), round(reading.seconds, 1))


def measure_growth(bench: Bench) -> tuple[tuple[Peak, ...], tuple[Bar, ...]]:
    """Return the peaks of all cases, and whether memory stayed where it was."""
    peaks: list[Peak] = []
    bars: list[Bar] = []
    for name, kind, events in CASES:
        once = measure_peak(bench, name, kind, bench.scaled(events))
        often = measure_peak(bench, name, kind, bench.scaled(events) * TIMES)
        peaks += [once, often]
        bars.append(
            at_most(MOST_GROWTH, often.peak_mb / once.peak_mb, name=f"{name}: peak memory with {TIMES} times the events")
        )
    return tuple(peaks), tuple(bars)
