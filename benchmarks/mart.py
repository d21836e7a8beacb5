"""Freshness to the mart: from the moment a payment is produced to the moment a committed snapshot of the mart counts it.

All four streams of the payments pipeline are sent, 500 events a second in all or as many as `--rate` says, and `headrace run
payments` lands them and builds every table of the pipeline, with its default settings, in a process of its own.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

import pyarrow as pa
from pyiceberg.catalog import Catalog

from benchmarks.bench import Bench
from benchmarks.builds_seen import BuildsSeen, watch_builds
from benchmarks.commands import headrace, wait_for
from benchmarks.meter import Reading, measure
from benchmarks.results import Bar, at_most
from headrace.iceberg.catalog.tables import open_catalog
from headrace.settings import Settings, load_settings
from headrace.spec import load_pipeline

RATE = 500
SLOW_RATE = 50
"""Up to this rate, single events count: the bar is the one for a trickle."""
MOST_MEDIAN, MOST_P99, MOST_TRICKLE_MEDIAN, MOST_PEAK_MB = 2.0, 5.0, 1.5, 3_000
MART = "payments_db.payments_daily"
_BETWEEN = "payments_db.payment_transactions"
STREAMS = ("charges", "refunds", "disputes")
"""The streams that reach the mart: subscriptions move no money."""
_WARM_UP_SECONDS = 180
"""Java compiles what it runs for the first minutes, and what has gathered until the first build has to be worked off."""
_SECONDS = 120
_START_SECONDS = 300.0
_DRAIN_SECONDS = 300.0
_BEHIND = f"the mart does not keep up: {_DRAIN_SECONDS:.0f} s later it still lacked events of the measured time"


@dataclass(frozen=True)
class MartFreshness:
    """How old events were when the mart counted them, and what the application cost meanwhile."""

    events_per_second: int
    events: int
    median_seconds: float
    p99_seconds: float
    oldest_seconds: float
    mart_builds: int
    cpu_share: float
    peak_mb: int


def measure_mart(bench: Bench) -> tuple[MartFreshness, tuple[Bar, ...]]:
    """Return the ages of the events that were produced after the warm-up, and which bars they met."""
    rate = bench.rate or RATE
    measured = measure_rate(bench, rate, warm_up=_WARM_UP_SECONDS, seconds=_SECONDS)
    name = f"at {rate:,} events/s"
    if rate <= SLOW_RATE:
        return measured, (at_most(MOST_TRICKLE_MEDIAN, measured.median_seconds, name=f"p50 to the mart in seconds {name}"),)
    return measured, (
        at_most(MOST_MEDIAN, measured.median_seconds, name=f"p50 to the mart in seconds {name}"),
        at_most(MOST_P99, measured.p99_seconds, name=f"p99 to the mart in seconds {name}"),
        at_most(MOST_PEAK_MB, measured.peak_mb, name="peak memory of the process tree in MB"),
    )


def measure_rate(bench: Bench, rate: int, *, warm_up: int, seconds: int) -> MartFreshness:
    """Return the ages of the events that were produced at a rate, after the warm-up."""
    if bench.quick:
        warm_up, seconds = warm_up // 2, seconds // 4
    folder = bench.new_home("mart")
    folder.mkdir()
    settings = load_settings(flags={}, environ={}, folder=folder)
    open_catalog(settings)
    routes = {name: (MART, _BETWEEN, f"payments_db.payment_{name}_cleaned", f"payments_db.payment_{name}") for name in STREAMS}
    tables = sorted({table for route in routes.values() for table in route[:-1]})
    with (
        watch_builds(Path(settings.catalog_uri.removeprefix("sqlite:///")), tables) as seen,
        headrace(bench, folder, "run", "payments") as application,
        headrace(bench, folder, "generate", "payments", "--rate", f"{rate_of_charges(rate):.3f}") as generator,
    ):
        processes = (application, generator)
        wait_for(
            lambda: bool(seen.visible(routes["charges"])), processes, seconds=_START_SECONDS, what="the mart was not built"
        )
        bench.say(f"Mart: it is built; {warm_up} s to warm up, {seconds} s to measure")
        time.sleep(warm_up)
        since = time.time()
        with measure(application.pid) as reading:
            time.sleep(seconds)
        until = time.time()
        ages = _drain(settings, seen, routes, processes, since=since, until=until)
    builds = sum(since <= moment < until for moment, _ in seen.builds[MART].values())
    measured = _freshness(rate, ages, builds, reading)
    bench.say(f"Mart: {rate:,} events/s: median {measured.median_seconds:.2f} s, p99 {measured.p99_seconds:.2f} s")
    return measured


def rate_of_charges(rate: float) -> float:
    """Return the rate of charges at which all streams together come to `rate`."""
    every = [stream.every_seconds for stream in load_pipeline("payments", environ={}, folder=Path.cwd()).streams]
    return rate / sum(min(every) / seconds for seconds in every)


def _drain(
    settings: Settings,
    seen: BuildsSeen,
    routes: dict[str, tuple[str, str, str, str]],
    processes: Sequence[subprocess.Popen[bytes]],
    *,
    since: float,
    until: float,
) -> list[float]:
    """Return the age of every event of the measured time, once the mart counts all; the generator goes on meanwhile."""
    catalog = open_catalog(settings)
    ages: list[float] = []
    for route in routes.values():

        def are_all_visible(route: tuple[str, ...] = route) -> bool:
            newest = max((checkpoint for checkpoint, _ in seen.visible(route)), default=0)
            landed = _produced(catalog, route[-1], since=since)
            # Landing goes in the order of time, but for what the partitions are apart.
            is_landed = any(produced > until + 1 for produced, _ in landed)
            return is_landed and all(checkpoint <= newest for produced, checkpoint in landed if produced < until)

        wait_for(are_all_visible, processes, seconds=_DRAIN_SECONDS, what=_BEHIND, every=5.0)
        visible = seen.visible(route)
        for produced, checkpoint in _produced(catalog, route[-1], since=since):
            if produced < until:
                ages.append(next(moment for newest, moment in visible if newest >= checkpoint) - produced)
    return sorted(ages)


def _produced(catalog: Catalog, raw: str, *, since: float) -> list[tuple[float, int]]:
    """Return when each landed event was produced, and its checkpoint, from a moment on."""
    first = datetime.fromtimestamp(since, timezone.utc).isoformat()
    scan = catalog.load_table(raw).scan(
        row_filter=f"kafka_timestamp >= '{first}'", selected_fields=("kafka_timestamp", "checkpoint_id")
    )
    rows = scan.to_arrow()
    moments = rows["kafka_timestamp"].cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_pylist()
    return [(micros / 1e6, checkpoint) for micros, checkpoint in zip(moments, rows["checkpoint_id"].to_pylist(), strict=True)]


def _freshness(rate: int, ages: list[float], builds: int, reading: Reading) -> MartFreshness:
    cores = len(os.sched_getaffinity(0))
    return MartFreshness(
        rate,
        len(ages),
        round(ages[len(ages) // 2], 2),
        round(ages[int(len(ages) * 0.99)], 2),
        round(ages[-1], 2),
        builds,
        round(reading.cpu_seconds / reading.seconds / cores, 2),
        round(reading.peak_bytes / 1e6),
    )
