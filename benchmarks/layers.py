"""Cost follows change: the same change is built on histories of 1, 10 and 50 times the size.

There are tables of every kind but `full`, which computes all rows again by definition: its cost follows the history. The
history is one day for each time, with a file of each day, so that recent keys are in recent partitions. A change is 1 % of a
day. For append and upsert, a full refresh of the longest history is measured as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING

from benchmarks.bench import Bench
from benchmarks.charge_lake import ChargeLake, Cost
from benchmarks.layer_history import History
from benchmarks.layer_tables import CASES, RAW_TABLES, TABLES, Case
from benchmarks.results import Bar, at_least, at_most
from headrace.sessions.shared_spark import spark_session
from headrace.settings import load_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TIMES = (1, 10, 50)
BASE = 40_000
"""How many charges a day has, and how many records of persons. With 200,000, the first builds would take a quarter of an hour,
the rows that builds look keys up in would not fit into `build_cache_mb`, and the entities not into the build's process."""

RUNS = 7
_WARM_UPS = 6
MOST_GROWTH = 1.5
LEAST_GAIN = 10.0


@dataclass
class MeasuredHistory:
    """A history, and what the changes cost on it."""

    history: History
    costs: Mapping[Case, list[Cost]] = field(default_factory=lambda: {case: [] for case in CASES})

    @property
    def times(self) -> int:
        return self.history.times

    def seconds(self, case: Case) -> float:
        return median(cost.seconds for cost in self.costs[case])

    def take_turn(self, bench: Bench, *, counts: bool) -> None:
        """Land each change and build the tables that read it; keep what they cost if the turn counts."""
        landed, seconds = None, []
        for case in CASES:
            if case.change != landed:
                self.history.land(case.change)
                landed = case.change
            if case.upstream:
                self.history.lake.build(case.upstream)
            cost = self.history.lake.measure(case.table)
            if counts:
                self.costs[case].append(cost)
            seconds.append(f"{case.name} {cost.seconds:.2f} s")
        bench.say(f"Layers: {self.times} times the base{'' if counts else ', warming up'}: {'; '.join(seconds)}")


def compare_layers(bench: Bench) -> tuple[list[dict[str, object]], tuple[Bar, ...]]:
    """Return what each change cost on each history, and what a full refresh costs on the longest."""
    settings = load_settings(flags={"home": str(bench.folder / "layers")}, environ={}, folder=bench.folder)
    with spark_session(settings, report=bench.say) as spark:
        histories = [MeasuredHistory(_fill_history(bench, spark, times)) for times in TIMES]
        for turn in range(_WARM_UPS + RUNS):
            for measured in histories:
                measured.take_turn(bench, counts=turn >= _WARM_UPS)
        for measured in histories:
            measured.history.check()
        refreshes = _refresh_longest(bench, histories[-1].history)
    return _rows(histories, refreshes), _bars(histories, refreshes)


def _fill_history(bench: Bench, spark: SparkSession, times: int) -> History:
    base = bench.scaled(BASE)
    bench.say(f"Layers: a history of {times * base:,} charges")
    lake = ChargeLake((bench.folder / f"layers-{times}").resolve(), spark, TABLES, raw_tables=RAW_TABLES)
    history = History(lake, times, base)
    history.fill()
    for table in dict.fromkeys(case.table for case in CASES):
        built = lake.build(table)
        bench.say(f"Layers: {table}, its first build of {built.rows:,} rows, {built.seconds:.1f} s")
    return history


def _refresh_longest(bench: Bench, longest: History) -> Mapping[Case, Cost]:
    costs = {}
    for case in CASES:
        if case.refreshes:
            costs[case] = longest.lake.measure(case.table, full_refresh=True)
            bench.say(f"Layers: {case.name}, full refresh, {costs[case].seconds:.1f} s")
    longest.check()
    return costs


def _rows(histories: Sequence[MeasuredHistory], refreshes: Mapping[Case, Cost]) -> list[dict[str, object]]:
    changes = [
        _row(case.name, f"change on {measured.times} x", measured.costs[case], turns=True)
        for case in CASES
        for measured in histories
    ]
    longest = histories[-1].times
    return changes + [_row(case.name, f"full refresh of {longest} x", [cost]) for case, cost in refreshes.items()]


def _row(table: str, what: str, costs: list[Cost], *, turns: bool = False) -> dict[str, object]:
    def megabytes(name: str) -> float:
        return round(float(median(getattr(cost, name) for cost in costs)) / 1e6, 2)

    def phase_seconds(name: str) -> float:
        return round(float(median(getattr(cost.phases, name) or 0.0 for cost in costs)), 3)

    return {
        "table": table,
        "what": what,
        "rows": round(median(cost.rows for cost in costs)),
        "seconds": round(median(cost.seconds for cost in costs), 3),
        "cpu_seconds": round(median(cost.cpu_seconds for cost in costs), 3),
        **{f"{name}_seconds": phase_seconds(name) for name in ("fetch", "query", "write", "commit")},
        "change_read_mb": megabytes("change_bytes"),
        "table_read_mb": megabytes("target_bytes"),
        "written_mb": megabytes("written_bytes"),
        "io_read_mb": megabytes("io_read_bytes"),
        "io_written_mb": megabytes("io_written_bytes"),
        "turns": [{"seconds": round(cost.seconds, 3), "cpu_seconds": round(cost.cpu_seconds, 3)} for cost in costs]
        if turns
        else [],
    }


def _bars(histories: Sequence[MeasuredHistory], refreshes: Mapping[Case, Cost]) -> tuple[Bar, ...]:
    shortest, longest = histories[0], histories[-1]
    bars = []
    for case in CASES:
        growth = longest.seconds(case) / shortest.seconds(case)
        bars.append(at_most(MOST_GROWTH, growth, name=f"{case.name}: seconds with {longest.times} times the history"))
    for case, refresh in refreshes.items():
        gain = refresh.seconds / longest.seconds(case)
        bars.append(at_least(LEAST_GAIN, gain, name=f"{case.name}: times faster than a full refresh at {longest.times}"))
    return tuple(bars)
