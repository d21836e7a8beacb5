"""What a live pipeline costs: the CPU of `headrace run payments` without events, and at 50 events a second."""

from __future__ import annotations

import time
from contextlib import ExitStack

from benchmarks.bench import Bench
from benchmarks.commands import headrace, wait_for
from benchmarks.mart import rate_of_charges
from benchmarks.meter import measure
from benchmarks.results import Bar, at_most
from headrace.iceberg.catalog.tables import load_table, open_catalog
from headrace.settings import load_settings
from headrace.spec.model.pipeline import TableName

RATE = 50
MOST_IDLE_CORES, MOST_CORES = 0.03, 0.4
_MART = TableName("payments_db", "payments_daily")
_START_SECONDS = 300.0
_SETTLE_SECONDS = 180
_SECONDS = 120


def measure_cost(bench: Bench) -> tuple[list[dict[str, object]], tuple[Bar, ...]]:
    """Return the cores that the application's process tree used, with events and without."""
    settle_seconds, seconds = (_SETTLE_SECONDS // 4, _SECONDS // 4) if bench.quick else (_SETTLE_SECONDS, _SECONDS)
    folder = bench.new_home("cost")
    folder.mkdir()
    settings = load_settings(flags={}, environ={}, folder=folder)
    catalog = open_catalog(settings)
    rows: list[dict[str, object]] = []
    with headrace(bench, folder, "run", "payments") as application:

        def cores() -> float:
            time.sleep(settle_seconds)
            with measure(application.pid) as reading:
                time.sleep(seconds)
            return reading.cpu_seconds / reading.seconds

        with ExitStack() as stack:
            arguments = ("generate", "payments", "--rate", f"{rate_of_charges(RATE):.3f}")
            generator = stack.enter_context(headrace(bench, folder, *arguments))

            def is_built() -> bool:
                table = load_table(catalog, _MART)
                return table is not None and table.current_snapshot() is not None

            wait_for(is_built, (application, generator), seconds=_START_SECONDS, what="the mart was not built")
            busy = cores()
        idle = cores()
    for case, value in ((f"{RATE} events/s", busy), ("no events", idle)):
        bench.say(f"Cost: {case}: {value:.3f} cores")
        rows.append({"case": case, "cores": round(value, 3)})
    return rows, (
        at_most(MOST_CORES, busy, name=f"cores at {RATE} events/s"),
        at_most(MOST_IDLE_CORES, idle, name="cores without events"),
    )
