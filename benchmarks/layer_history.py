"""A history of some days for the benchmark `layers`, the changes that come to it, and the rows that its tables must have.

A day of the history is a checkpoint and a file of each raw table. A change has the same size whatever the history is: half of
its charges and persons are new, half are new versions of those of the newest day. A merchant has charges of one day. Those of
the newest day have as many in every history, so that a changed merchant touches as many. New persons share addresses and
numbers with persons of any day.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import polars as pl
import pyarrow as pa

from benchmarks.charge_lake import ChargeLake
from benchmarks.charge_rows import (
    CENTS,
    CURRENCIES,
    DAY_MS,
    PROVIDERS,
    START,
    charge_rows,
    draw,
    merchant_rows,
    number_charges,
)
from benchmarks.layer_tables import Change
from benchmarks.person_rows import person_records
from headrace.serving.sql.query import run_query

CHANGE_SHARE = 100
"""One charge of so many of a day is in a change."""

_CHARGES_PER_MERCHANT = 10
_PEOPLE_PERCENT = 45
"""How many people a hundred records are of."""


@dataclass
class History:
    """A lake with `times` days of `base` charges, merchants of these, and `base` records of persons."""

    lake: ChargeLake
    times: int
    base: int
    charges: int = 0
    records: int = 0
    _landed: int = 0
    _landed_cents: int = 0
    _cents: int = 0
    _turns: int = 0
    _versions: dict[int, int] = field(default_factory=dict)
    _merchant_versions: dict[int, int] = field(default_factory=dict)
    _changed_records: set[int] = field(default_factory=set)

    def fill(self) -> None:
        """Land the history, day by day."""
        for day in range(self.times):
            self._land_charges(number_charges(self.charges, self.base), day, version=0)
            self._land_merchants(range(day * self._merchants, (day + 1) * self._merchants), version=0)
            self._land_persons(self.records, self.base, version=0)
            self.charges += self.base
            self.records += self.base

    def land(self, change: Change) -> None:
        """Land a change. A turn begins with charges; merchants and persons that follow are of the same turn."""
        half = self.base // CHANGE_SHARE // 2
        first = (self.times - 1) * self.base
        if change == "charges":
            self._turns += 1
            again = number_charges(first, self.base).sample(half, seed=self._turns)
            self._land_charges(number_charges(self.charges, half), self.times - 1, again=again, version=self._turns)
            self.charges += half
        elif change == "merchants":
            count = max(1, self.base // CHANGE_SHARE // _CHARGES_PER_MERCHANT)
            newest = (self.times - 1) * self._merchants
            places = [(self._turns * count + place) % self._merchants for place in range(count)]
            self._land_merchants([newest + place for place in places], version=self._turns)
        else:
            again_from = first + self._turns * half % (self.base - half)
            self._land_persons(self.records, half, again_from=again_from, version=self._turns)
            self.records += half

    def check(self) -> None:
        """Raise a RuntimeError unless every table has the rows that it must, as a query reads them."""
        for table, wanted in self._wanted().items():
            columns = ", ".join(f'{expression} AS "{expression}"' for expression in wanted)
            (row,) = run_query(self.lake.catalog, f"SELECT {columns} FROM bench.{table}").to_pylist()
            for expression, value in wanted.items():
                if row[expression] != value:
                    where = f"{table} at {self.times} times the base"
                    raise RuntimeError(f"{expression} of {where} is {row[expression]}, and must be {value}")

    def _wanted(self) -> Mapping[str, Mapping[str, int]]:
        cents = "CAST(100 * sum({}) AS BIGINT)".format
        landed = {"count(*)": self._landed, cents("amount"): self._landed_cents}
        newest = {"count(*)": self.charges, cents("amount"): self._cents}
        counted = {"sum(charges)": self.charges, cents("amount"): self._cents}
        groups = self.times * len({*PROVIDERS}) * len({*CURRENCIES})
        return {
            "appended": landed,
            "upserted": newest,
            "versions": {**landed, "count_if(is_current)": self.charges},
            "features": newest,
            "daily": {"count(*)": groups, **counted},
            "hot_day": {"count(*)": 1, **counted},
            "enriched": {**newest, "sum(merchant_version)": self._merchant_version_sum()},
            "entities": {"count(*)": self.records, "count_if(updated_at > created_at)": len(self._changed_records)},
        }

    def _merchant_version_sum(self) -> int:
        """Return the sum of the newest versions of all charges' merchants. Only merchants of the newest day change."""
        first = (self.times - 1) * self._merchants
        count, more = divmod(self.charges - (self.times - 1) * self.base, self._merchants)
        return sum(version * (count + (number - first < more)) for number, version in self._merchant_versions.items())

    @property
    def _merchants(self) -> int:
        """How many merchants a day has."""
        return self.base // _CHARGES_PER_MERCHANT

    def _land_charges(self, new: pl.DataFrame, day: int, *, version: int, again: pl.DataFrame | None = None) -> None:
        """Land the first version of new charges, and this version of charges that come again, all of one day."""
        parts = [new.with_columns(version=pl.lit(0, pl.Int64))]
        if again is not None:
            parts.append(again.with_columns(version=pl.lit(version, pl.Int64)))
            numbers = again["number"].to_list()
            self._cents += sum(version - self._versions.get(number, 0) for number in numbers)
            self._versions |= dict.fromkeys(numbers, version)
        self._cents += int(parts[0].select(CENTS.sum()).item())
        charges = pl.concat(parts).with_columns(
            created_ms=day * DAY_MS + draw(20, DAY_MS),
            merchant=day * self._merchants + (pl.col("number") - day * self.base) % self._merchants,
        )
        self.lake.land(_with_settlement(charge_rows(charges), charges))
        self._landed += charges.height
        self._landed_cents += int(charges.select(CENTS.sum()).item())

    def _land_merchants(self, numbers: range | list[int], *, version: int) -> None:
        merchants = pl.DataFrame({"number": pl.Series(numbers, dtype=pl.Int64)})
        self.lake.land(merchant_rows(merchants.with_columns(version=pl.lit(version, pl.Int64))), raw="merchants")
        if version:
            self._merchant_versions |= dict.fromkeys(numbers, version)

    def _land_persons(self, first: int, count: int, *, version: int, again_from: int | None = None) -> None:
        people = self.times * self.base * _PEOPLE_PERCENT // 100
        parts = [person_records(first, count, people=people)]
        if again_from is not None:
            again = person_records(again_from, count, people=people)
            parts.append(again.with_columns(pl.col("updated_at") + pl.duration(seconds=version)))
            self._changed_records.update(range(again_from, again_from + count))
        self.lake.land(pl.concat(parts).to_arrow(compat_level=pl.CompatLevel.oldest()), raw="persons")


def _with_settlement(rows: pa.Table, charges: pl.DataFrame) -> pa.Table:
    """Return rows of charges with the time at which each settles: all on the day that follows the longest history."""
    start = int(START.timestamp() * 1000) + 60 * DAY_MS
    settled = charges.select((start + draw(21, DAY_MS)).cast(pl.Datetime("ms", "UTC"))).to_series()
    return rows.append_column("settled_at", settled.to_arrow(compat_level=pl.CompatLevel.oldest()))
