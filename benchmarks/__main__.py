"""`python -m benchmarks [NAME …] [--quick]`: measure Headrace on this machine, and the alternatives to it.

Landing is compared with plain Spark, two workers of a cluster against one, layers against a full rebuild and a plain query,
a change of payments against dbt-duckdb's full rebuild, entities (by equal values, and fuzzy) against Splink, a compacted table
against its small files, receiving against a handler that does nothing.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime, timezone

from rich.console import Console

from benchmarks.bench import Bench, open_bench
from benchmarks.capture import measure_capture
from benchmarks.change import compare_change
from benchmarks.cluster import compare_workers
from benchmarks.compaction import compare_compaction
from benchmarks.cost import measure_cost
from benchmarks.entities import compare_entities
from benchmarks.freshness import compare_freshness
from benchmarks.fuzzy import compare_fuzzy
from benchmarks.layers import compare_layers
from benchmarks.mart import measure_mart
from benchmarks.memory import measure_growth
from benchmarks.one_row import measure_one_row
from benchmarks.receive import compare_receiving
from benchmarks.refresh import compare_refresh
from benchmarks.results import Bar, save_results, show_bars, show_table
from benchmarks.rolling import compare_rolling
from benchmarks.speed import CASES, compare
from benchmarks.sustained import measure_sustained
from benchmarks.webhooks import compare_webhooks

Rows = Sequence[Mapping[str, object]]


def measure_speed(bench: Bench) -> tuple[Rows, tuple[Bar, ...]]:
    comparisons = [compare(bench, case) for case in CASES]
    rows = [
        {
            "case": comparison.case.name,
            "side": side,
            "records_per_second": round(comparison.per_second(side)),
            "records_per_cpu_second": round(comparison.per_cpu_second(side)),
            "peak_mb": round(comparison.peak_mb(side)),
            "turns": [
                {"seconds": round(turn.seconds, 2), "cpu_seconds": round(turn.cpu_seconds, 2), "rows": turn.rows}
                for turn in comparison.turns
                if turn.side == side
            ],
        }
        for comparison in comparisons
        for side in ("headrace", "plain")
    ]
    return rows, tuple(bar for comparison in comparisons for bar in comparison.bars())


def measure_freshness(bench: Bench) -> tuple[Rows, tuple[Bar, ...]]:
    measured, bars = compare_freshness(bench)
    return [asdict(measurement) for measurement in measured], bars


def measure_memory(bench: Bench) -> tuple[Rows, tuple[Bar, ...]]:
    peaks, bars = measure_growth(bench)
    return [asdict(peak) for peak in peaks], bars


def measure_mart_freshness(bench: Bench) -> tuple[Rows, tuple[Bar, ...]]:
    measured, bars = measure_mart(bench)
    return [asdict(measured)], bars


def measure_changes(bench: Bench) -> tuple[Rows, tuple[Bar, ...]]:
    return [asdict(measurement) for measurement in measure_capture(bench)], ()


BENCHMARKS: Mapping[str, Callable[[Bench], tuple[Rows, tuple[Bar, ...]]]] = {
    "speed": measure_speed,
    "freshness": measure_freshness,
    "memory": measure_memory,
    "cluster": compare_workers,
    "layers": compare_layers,
    "change": compare_change,
    "refresh": compare_refresh,
    "rolling": compare_rolling,
    "entities": compare_entities,
    "fuzzy": compare_fuzzy,
    "mart": measure_mart_freshness,
    "sustained": measure_sustained,
    "cost": measure_cost,
    "capture": measure_changes,
    "one-row": measure_one_row,
    "compaction": compare_compaction,
    "receive": compare_receiving,
    "webhooks": compare_webhooks,
}


def _file_name(name: str, bench: Bench) -> str:
    return f"{name}-{bench.rate}" if name == "mart" and bench.rate else name


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="|".join(BENCHMARKS), help="which to run (all)")
    parser.add_argument(
        "--quick", action="store_true", help="a tenth of the events, to see that it works; results are not saved"
    )
    parser.add_argument("--rate", type=int, help="events a second that `mart` sends (500)")
    options = parser.parse_args(arguments)
    unknown = set(options.names) - set(BENCHMARKS)
    if unknown:
        parser.error(f"unknown: {', '.join(sorted(unknown))}. Benchmarks are: {', '.join(BENCHMARKS)}")
    console = Console()
    missed = 0
    with open_bench(quick=options.quick, say=console.print, rate=options.rate) as bench:
        for name in options.names or BENCHMARKS:
            rows, bars = BENCHMARKS[name](bench)
            show_table(console, name.capitalize(), rows)
            if bars:
                show_bars(console, bars)
            if not options.quick:
                console.print(f"Saved to {save_results(_file_name(name, bench), rows, bars, now=datetime.now(timezone.utc))}")
            missed += sum(not bar.met for bar in bars)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
