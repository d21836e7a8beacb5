"""A full build of payments against dbt-duckdb's full rebuild of the same tables from the same raw tables, in turns."""

from __future__ import annotations

import os
from statistics import median

from benchmarks.bench import Bench
from benchmarks.dbt_side import DbtSide
from benchmarks.meter import measure
from benchmarks.payments_lake import PaymentsLake, build_all
from benchmarks.results import Bar, at_most
from headrace.sessions.shared_spark import spark_session

HISTORY = 300_000
DAYS = 30.0
WARM_UPS, TURNS = 3, 5
MOST_RATIO = 3.0


def compare_refresh(bench: Bench) -> tuple[list[dict[str, object]], tuple[Bar, ...]]:
    """Return what both sides took for all tables."""
    payments = PaymentsLake(bench.new_home("refresh"), history=bench.scaled(HISTORY), days=DAYS)
    payments.fill()
    bench.say(f"Refresh: {payments.events:,} events")
    ours: list[float] = []
    cpu: list[float] = []
    theirs: list[float] = []
    peak = 0.0
    with spark_session(payments.settings, report=bench.say) as spark:
        lake = payments.open(spark)
        with measure(os.getpid()) as first:
            build_all(lake)
        bench.say(f"Refresh: the first build took {first.seconds:.1f} s")
        dbt = DbtSide.export(payments, bench.new_home("refresh-dbt"))
        for turn in range(WARM_UPS + TURNS):
            with measure(os.getpid()) as reading:
                build_all(lake, full_refresh=True)
            seconds = dbt.rebuild()
            bench.say(f"Refresh: headrace {reading.seconds:.1f} s, dbt-duckdb {seconds:.1f} s")
            if turn >= WARM_UPS:
                ours.append(reading.seconds)
                cpu.append(reading.cpu_seconds)
                theirs.append(seconds)
                peak = max(peak, reading.peak_bytes / 1024**2)
    rows: list[dict[str, object]] = [
        {
            "side": "headrace, full refresh",
            "events": payments.events,
            "seconds": round(median(ours), 1),
            "cpu_seconds": round(median(cpu), 1),
            "peak_mb": round(peak),
            "first_build_seconds": round(first.seconds, 1),
            "turns": [round(seconds, 1) for seconds in ours],
        },
        {
            "side": "dbt-duckdb, full rebuild",
            "events": payments.events,
            "seconds": round(median(theirs), 1),
            "turns": [round(seconds, 1) for seconds in theirs],
        },
    ]
    ratio = median(mine / other for mine, other in zip(ours, theirs, strict=True))
    return rows, (at_most(MOST_RATIO, ratio, name="times dbt-duckdb's full rebuild"),)
