"""Entities: a million records of three sources in one run, beside Splink with the same exact rules; then one percent more.

Both sides take turns in one process: records of three sources in, one table of records with their entity out. Headrace builds
its table from raw Iceberg tables; Splink, on DuckDB, reads the same records from Parquet and writes Parquet.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TypeVar

import polars as pl

from benchmarks.bench import Bench
from benchmarks.meter import Reading, measure
from benchmarks.person_lake import EXACT, NORMALISED, PersonLake
from benchmarks.person_rows import SOURCES, person_records
from benchmarks.results import Bar, at_least, at_most
from headrace.sessions.shared_spark import spark_session
from headrace.settings import load_settings

RECORDS = 1_000_000
RUNS = 3
CHANGES = 5
_MOST_OF_A_RUN = 0.05
_THREADS = 2
T = TypeVar("T")


@dataclass(frozen=True)
class _People:
    records: int

    @property
    def people(self) -> int:
        return self.records * 45 // 100

    def part(self, number: int) -> pl.DataFrame:
        """Return the records of the first run (0), or one more percent (1, 2, …)."""
        share = self.records // 100
        first, count = (0, self.records) if number == 0 else (self.records + (number - 1) * share, share)
        return person_records(first, count, people=self.people)


def compare_entities(bench: Bench) -> tuple[list[dict[str, object]], tuple[Bar, ...]]:
    """Return what a run costs on both sides, and what one percent more costs afterwards."""
    people = _People(bench.scaled(RECORDS))
    folder = (bench.folder / "entities").resolve()
    settings = load_settings(flags={"home": str(folder / "spark")}, environ={}, folder=folder)
    readings: dict[str, list[Reading]] = {}
    with spark_session(settings, report=bench.say) as spark:
        lake = PersonLake(folder / "lake", spark)
        lake.land(people.part(0))
        for name in (EXACT, NORMALISED):
            lake.build(name)  # warms up, and creates the table that is then rebuilt
        for source in SOURCES:
            people.part(0).filter(pl.col("source") == source).write_parquet(folder / f"{source}.parquet")
        for turn in range(RUNS):
            clusters = timed(bench, readings, "Splink", lambda: resolve_with_splink(folder))
            timed(bench, readings, "Headrace", lambda: lake.build(EXACT, full_refresh=True))
            if turn == 0:
                check_clusters(lake.entities(EXACT), clusters)
        timed(bench, readings, "Headrace, normalising", lambda: lake.build(NORMALISED, full_refresh=True))
        for number in range(CHANGES):
            lake.land(people.part(number + 1))
            timed(bench, readings, "Headrace, 1 % more", lambda: lake.build(EXACT))
            timed(bench, readings, "Headrace, 1 % more, normalising", lambda: lake.build(NORMALISED))
        by_increments = lake.entities(EXACT)
        lake.build(EXACT, full_refresh=True)
        check_clusters(by_increments, lake.entities(EXACT).rename({"entity_id": "cluster_id"}))
    return [row_of(what, reading) for what, reading in readings.items()], _bars(readings)


def resolve_with_splink(folder: Path) -> pl.DataFrame:
    """Return the cluster of each record, by equal addresses and numbers: Splink's deterministic link and its clusters."""
    import duckdb
    from splink import DuckDBAPI, Linker, SettingsCreator, block_on

    with duckdb.connect() as connection:
        connection.execute(f"SET threads = {_THREADS}")
        files = ", ".join(f"'{folder / source}.parquet'" for source in SOURCES)
        connection.execute(
            f"CREATE TABLE people AS SELECT source || ':' || source_id AS unique_id, * FROM read_parquet([{files}])"
        )
        settings = SettingsCreator(
            link_type="dedupe_only",
            blocking_rules_to_generate_predictions=[block_on("email"), block_on("phone")],
            comparisons=[],
        )
        linker = Linker(DuckDBAPI(connection=connection).register("people"), settings)
        pairs = linker.inference.deterministic_link()
        clusters = linker.clustering.cluster_pairwise_predictions_at_threshold(pairs)
        result = folder / "clusters.parquet"
        connection.execute(f"COPY (SELECT * FROM {clusters.physical_name}) TO '{result}' (FORMAT parquet)")
    return pl.read_parquet(result, columns=["source", "source_id", "cluster_id"])


def check_clusters(entities: pl.DataFrame, clusters: pl.DataFrame) -> None:
    """Raise unless the same records are together on both sides."""
    both = entities.join(clusters, on=["source", "source_id"])
    counts = (both["entity_id"].n_unique(), both["cluster_id"].n_unique(), both.select("entity_id", "cluster_id").n_unique())
    if not entities.height == clusters.height == both.height or len(set(counts)) > 1:
        raise RuntimeError(f"{entities.height:,} and {clusters.height:,} records: entities, clusters and pairs are {counts}")


def timed(bench: Bench, readings: dict[str, list[Reading]], what: str, run: Callable[[], T]) -> T:
    """Return what `run` returns, and add what it took to the readings."""
    with measure(os.getpid()) as reading:
        result = run()
    readings.setdefault(what, []).append(reading)
    bench.say(f"Entities: {what}, {reading.seconds:.2f} s, {reading.cpu_seconds:.2f} s of CPU")
    return result


def row_of(what: str, readings: list[Reading]) -> dict[str, object]:
    """Return the medians of several readings, and each of them, as a row of results."""
    return {
        "what": what,
        "seconds": round(median(reading.seconds for reading in readings), 3),
        "cpu_seconds": round(median(reading.cpu_seconds for reading in readings), 3),
        "turns": [{"seconds": round(reading.seconds, 3), "cpu_seconds": round(reading.cpu_seconds, 3)} for reading in readings],
    }


def _bars(readings: dict[str, list[Reading]]) -> tuple[Bar, ...]:
    def seconds(what: str) -> float:
        return median(reading.seconds for reading in readings[what])

    whole = seconds("Headrace")
    return (
        at_least(1.0, seconds("Splink") / whole, name="entities: times as fast as Splink"),
        at_most(_MOST_OF_A_RUN, seconds("Headrace, 1 % more") / whole, name="entities: 1 % more, of a whole run"),
    )
