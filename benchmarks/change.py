"""A change against a full rebuild: 350 new charges through all tables of payments, on histories of several sizes.

The other side is dbt-duckdb, which rebuilds the same tables from the same raw tables (`headrace export dbt payments`). Both
take turns on the middle history.
"""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import dataclass, field
from statistics import median

from benchmarks.bench import Bench
from benchmarks.dbt_side import DbtSide
from benchmarks.meter import measure
from benchmarks.payments_lake import PaymentsLake, build_all
from benchmarks.results import Bar, at_least, at_most
from headrace.build.lake import Lake
from headrace.sessions.shared_spark import spark_session

HISTORIES = (30_000, 300_000, 1_500_000)
AGAINST = 300_000
DAYS = 30.0
CHARGES = 350
WARM_UPS, TURNS = 8, 5
LEAST_GAIN, MOST_GROWTH, MOST_PEAK_MB = 5.0, 1.5, 3 * 1024


@dataclass
class History:
    """A lake with a history of so many charges, and what each measured change took."""

    charges: int
    payments: PaymentsLake
    lake: Lake
    seconds: list[float] = field(default_factory=list)
    cpu_seconds: list[float] = field(default_factory=list)

    def change(self, *, counts: bool) -> float:
        """Land 350 charges and build all tables; return the seconds that the builds took."""
        self.payments.land_charges(CHARGES)
        with measure(os.getpid()) as reading:
            build_all(self.lake)
        if counts:
            self.seconds.append(reading.seconds)
            self.cpu_seconds.append(reading.cpu_seconds)
        return reading.seconds

    def peak_of_changes(self) -> float:
        """Return the peak memory in MB of a new process that builds changes on this history alone."""
        folder = str(self.payments.settings.home.parent)
        command = [sys.executable, "-m", "benchmarks.building", folder]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdin
            assert process.stdout
            with measure(process.pid) as reading:
                for _ in range(WARM_UPS):
                    self.payments.land_charges(CHARGES)
                    process.stdin.write("build\n")
                    process.stdin.flush()
                    if not process.stdout.readline():
                        raise RuntimeError("the process that builds changes ended")
            process.stdin.close()
        return reading.peak_bytes / 1024**2


def compare_change(bench: Bench) -> tuple[list[dict[str, object]], tuple[Bar, ...]]:
    """Return what a change took on each history, and what dbt's full rebuild took."""
    sizes = [bench.scaled(size) for size in HISTORIES]
    with ExitStack() as stack:
        first = PaymentsLake((bench.folder / f"change-{sizes[0]}").resolve(), history=sizes[0], days=DAYS)
        spark = stack.enter_context(spark_session(first.settings, report=bench.say))
        histories = []
        for size in sizes:
            folder = (bench.folder / f"change-{size}").resolve()
            payments = first if size == sizes[0] else PaymentsLake(folder, history=size, days=DAYS)
            bench.say(f"Change: a history of {size:,} charges, {payments.events:,} events in all")
            payments.fill()
            history = History(size, payments, payments.open(spark))
            with measure(os.getpid()) as reading:
                build_all(history.lake)
            bench.say(f"Change: its first build took {reading.seconds:.1f} s")
            histories.append(history)
        against = next(history for history in histories if history.charges == bench.scaled(AGAINST))
        dbt = DbtSide.export(against.payments, bench.folder / "change-dbt")
        rebuilds = []
        for turn in range(WARM_UPS + TURNS):
            for history in histories:
                seconds = history.change(counts=turn >= WARM_UPS)
                bench.say(f"Change: {CHARGES} charges on {history.charges:,}: {seconds:.2f} s")
            if turn >= WARM_UPS:
                rebuilds.append(dbt.rebuild())
                bench.say(f"Change: dbt-duckdb's full rebuild: {rebuilds[-1]:.2f} s")
    peaks = [history.peak_of_changes() for history in histories]
    bench.say(f"Change: peak memory of a process for each history: {', '.join(f'{peak:,.0f} MB' for peak in peaks)}")
    rows: list[dict[str, object]] = [
        {
            "side": "headrace",
            "history": history.charges,
            "seconds": round(median(history.seconds), 2),
            "cpu_seconds": round(median(history.cpu_seconds), 2),
            "peak_mb": round(peak),
            "turns": [round(reading, 2) for reading in history.seconds],
        }
        for history, peak in zip(histories, peaks, strict=True)
    ]
    rebuilt = {"side": "dbt-duckdb, full rebuild", "history": against.charges, "seconds": round(median(rebuilds), 2)}
    rows.append({**rebuilt, "turns": [round(rebuild, 2) for rebuild in rebuilds]})
    gain = median(theirs / ours for theirs, ours in zip(rebuilds, against.seconds, strict=True))
    growth = median(histories[-1].seconds) / median(histories[0].seconds)
    return rows, (
        at_least(LEAST_GAIN, gain, name=f"times as fast as dbt-duckdb's full rebuild at {against.charges:,} charges"),
        at_most(MOST_GROWTH, growth, name=f"{histories[-1].charges:,} charges to {histories[0].charges:,}"),
        at_most(MOST_PEAK_MB, peaks[-1], name=f"MB of peak memory at {histories[-1].charges:,} charges"),
    )
