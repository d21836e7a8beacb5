"""Cost follows change: the same change is built on histories of 1, 10 and 50 times the size.

The history is one day for each time, with a file of each day, so that recent keys are in recent partitions. A change is 1 % of
a day: half of it new charges of the newest day, half of it new versions of charges of that day.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING

import polars as pl

from benchmarks.bench import Bench
from benchmarks.charge_lake import ChargeLake, Cost
from benchmarks.charge_rows import DAY_MS, charge_rows, draw, number_charges
from benchmarks.results import Bar, at_least, at_most
from headrace.runs.landing import spark_session
from headrace.settings import load_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TIMES = (1, 10, 50)
BASE = 200_000
CHANGE_SHARE = 100
RUNS = 3
_WARM_UPS = 3
MOST_GROWTH = 1.5
LEAST_GAIN = 10.0

_COLUMNS = """event_id, charge_id, customer_id, merchant_id, provider, amount, currency, payment_method_type,
    card_brand, card_country, billing_country, risk_score, created_at, updated_at"""
TABLES: Mapping[str, str] = {
    "core/appended.sql": f"""/*
partition_by: [days(created_at)]
*/
SELECT {_COLUMNS} FROM bench.raw_charges
""",
    "core/upserted.sql": f"""/*
keys: [event_id]
sequence_by: updated_at
constant: [created_at]
partition_by: [days(created_at)]
*/
SELECT {_COLUMNS} FROM bench.raw_charges
""",
}
NAMES = ("appended", "upserted")


@dataclass
class History:
    """A lake with so many days, and how many charges it has."""

    lake: ChargeLake
    times: int
    base: int
    charges: int = 0
    changes: int = 0
    landed: int = 0
    costs: dict[str, list[Cost]] = field(default_factory=lambda: {name: [] for name in NAMES})
    refreshes: dict[str, Cost] = field(default_factory=dict)

    def fill(self) -> None:
        for day in range(self.times):
            self._land(_of_day(number_charges(self.charges, self.base), day, version=0))
            self.charges += self.base

    def change(self) -> None:
        """Lands a change, each time another one of the same size."""
        half = self.base // CHANGE_SHARE // 2
        day = self.times - 1
        self.changes += 1
        newest = number_charges(day * self.base, self.base)
        again = newest.sample(half, seed=self.changes)
        new = number_charges(self.charges, half)
        self._land(pl.concat([_of_day(new, day, version=0), _of_day(again, day, version=self.changes)]))
        self.charges += half

    def check(self) -> None:
        """Raises unless both tables have the rows that they must."""
        for name, wanted in (("appended", self.landed), ("upserted", self.charges)):
            found = self.lake.count(name)
            if found != wanted:
                raise RuntimeError(f"{name} has {found:,} rows at {self.times} times the base, and {wanted:,} were to be there")

    def _land(self, charges: pl.DataFrame) -> None:
        self.lake.land(charge_rows(charges))
        self.landed += charges.height


def compare_layers(bench: Bench) -> tuple[list[dict[str, object]], tuple[Bar, ...]]:
    """Gives back what the change cost on each history and what a full refresh costs on the longest."""
    settings = load_settings(flags={"home": str(bench.folder / "layers")}, environ={}, folder=bench.folder)
    with spark_session(settings, report=bench.say) as spark:
        histories = [_history(bench, spark, times) for times in TIMES]
        for turn in range(_WARM_UPS + RUNS):
            for history in histories:
                history.change()
                for name in NAMES:
                    cost = history.lake.measure(name)
                    if turn >= _WARM_UPS:
                        history.costs[name].append(cost)
                        bench.say(f"Layers: {name}, {history.times} times the base, {cost.seconds:.2f} s")
        longest = histories[-1]
        for name in NAMES:
            longest.refreshes[name] = longest.lake.measure(name, full_refresh=True)
            bench.say(f"Layers: {name}, full refresh, {longest.refreshes[name].seconds:.1f} s")
        for history in histories:
            history.check()
    return _rows(histories), _bars(histories)


def _history(bench: Bench, spark: SparkSession, times: int) -> History:
    base = bench.scaled(BASE)
    bench.say(f"Layers: a history of {times * base:,} charges")
    history = History(ChargeLake((bench.folder / f"layers-{times}").resolve(), spark, TABLES), times, base)
    history.fill()
    for name in NAMES:
        history.lake.build(name)
    return history


def _of_day(charges: pl.DataFrame, day: int, *, version: int) -> pl.DataFrame:
    return charges.with_columns(created_ms=day * DAY_MS + draw(20, DAY_MS), version=pl.lit(version, pl.Int64))


def _rows(histories: list[History]) -> list[dict[str, object]]:
    changes = [
        _row(name, f"change on {history.times} x", history.costs[name], turns=True) for name in NAMES for history in histories
    ]
    refreshes = [_row(name, f"full refresh of {histories[-1].times} x", [histories[-1].refreshes[name]]) for name in NAMES]
    return changes + refreshes


def _row(table: str, what: str, costs: list[Cost], *, turns: bool = False) -> dict[str, object]:
    def megabytes(name: str) -> float:
        return round(float(median(getattr(cost, name) for cost in costs)) / 1e6, 2)

    return {
        "table": table,
        "what": what,
        "rows": round(median(cost.rows for cost in costs)),
        "seconds": round(median(cost.seconds for cost in costs), 3),
        "cpu_seconds": round(median(cost.cpu_seconds for cost in costs), 3),
        "change_read_mb": megabytes("change_bytes"),
        "table_read_mb": megabytes("target_bytes"),
        "written_mb": megabytes("written_bytes"),
        "io_read_mb": megabytes("io_read_bytes"),
        "io_written_mb": megabytes("io_written_bytes"),
        "turns": [{"seconds": round(cost.seconds, 3), "cpu_seconds": round(cost.cpu_seconds, 3)} for cost in costs]
        if turns
        else [],
    }


def _bars(histories: list[History]) -> tuple[Bar, ...]:
    bars = []
    shortest, longest = histories[0], histories[-1]
    for name in NAMES:
        few = median(cost.seconds for cost in shortest.costs[name])
        many = median(cost.seconds for cost in longest.costs[name])
        growth = f"{name}: seconds with {longest.times} times the history"
        bars.append(at_most(MOST_GROWTH, many / few, name=growth))
        gain = f"{name}: times faster than a full refresh at {longest.times}"
        bars.append(at_least(LEAST_GAIN, longest.refreshes[name].seconds / many, name=gain))
    return tuple(bars)
