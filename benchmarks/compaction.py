"""Queries on a table of 2,000 small files, against the same table after `headrace maintain`.

They are asked of DuckDB, as `headrace query` does, and of Spark. Both tables are landed alike, a file for each batch. The sides
take turns, and the median counts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

import polars as pl
import psutil

from benchmarks.bench import Bench
from benchmarks.charge_lake import ChargeLake
from benchmarks.charge_rows import DAY_MS, charge_rows, draw, number_charges
from benchmarks.results import Bar, at_least
from headrace.operations.maintain.maintaining import list_work, maintain_all
from headrace.serving.sql.query import run_query
from headrace.sessions.shared_spark import spark_session
from headrace.settings import load_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FILES = 2_000
ROWS_PER_FILE = 500
DAYS = 4
RUNS = 5
LEAST_GAIN = 5.0
TABLE = "bench.raw_charges"
_MERCHANT = charge_rows(number_charges(0, 1).with_columns(created_ms=pl.lit(0), version=pl.lit(0)))["merchant_id"][0]
QUERIES = {
    "aggregate": f"SELECT provider, count(*) AS charges, sum(amount) AS amount FROM {TABLE} GROUP BY provider",
    "one day": f"SELECT count(*) AS charges, max(risk_score) AS worst FROM {TABLE} WHERE created_at >= TIMESTAMP '2026-01-04'",
    "one merchant": f"SELECT * FROM {TABLE} WHERE merchant_id = '{_MERCHANT}' ORDER BY kafka_offset",
}


@dataclass(frozen=True)
class Turn:
    engine: str
    query: str
    side: str
    seconds: float
    cpu_seconds: float
    rows: int


def compare_compaction(bench: Bench) -> tuple[list[dict[str, object]], tuple[Bar, ...]]:
    """Return what each query costs on either table, and how many files each has."""
    files = bench.scaled(FILES)
    settings = load_settings(flags={"home": str(bench.folder / "compaction")}, environ={}, folder=bench.folder)
    with spark_session(settings, report=bench.say) as spark:
        lakes = {
            side: ChargeLake((bench.folder / f"compaction-{side}").resolve(), spark, {}) for side in ("small", "compacted")
        }
        for side, lake in lakes.items():
            bench.say(f"Compaction: landing {files:,} files of {ROWS_PER_FILE} rows ({side})")
            _land(lake, files)
        lake = lakes["compacted"]
        started = time.monotonic()
        work = list_work(lake.settings, [lake.pipeline], table=TABLE)
        (done,) = maintain_all(lake.settings, spark, work)
        seconds = time.monotonic() - started
        bench.say(f"Compaction: {done.before.files:,} files are {done.after.files:,}, {seconds:.1f} s")
        turns = _take_turns(bench, spark, lakes)
    rows: list[dict[str, object]] = [
        _row(turns, engine, query, side, done.after.files if side == "compacted" else done.before.files)
        for engine in ("duckdb", "spark")
        for query in QUERIES
        for side in lakes
    ]
    return rows, tuple(_bar(turns, engine, query) for engine in ("duckdb", "spark") for query in QUERIES)


def _land(lake: ChargeLake, files: int) -> None:
    for number in range(files):
        day = number * DAYS // files
        charges = number_charges(number * ROWS_PER_FILE, ROWS_PER_FILE)
        lake.land(charge_rows(charges.with_columns(created_ms=day * DAY_MS + draw(20, DAY_MS), version=pl.lit(0, pl.Int64))))


def _take_turns(bench: Bench, spark: SparkSession, lakes: Mapping[str, ChargeLake]) -> list[Turn]:
    jvm = psutil.Process(int(spark._jvm.java.lang.ProcessHandle.current().pid()))  # type: ignore[union-attr]
    engines: dict[str, tuple[Callable[[ChargeLake, str], list[str]], psutil.Process]] = {
        "duckdb": (_ask_duckdb, psutil.Process()),
        "spark": (_ask_spark, jvm),
    }
    turns: list[Turn] = []
    for engine, (ask, process) in engines.items():
        for query, sql in QUERIES.items():
            for number in range(RUNS + 1):
                answers = []
                for side, lake in lakes.items():
                    before, started = process.cpu_times(), time.monotonic()
                    answers.append(ask(lake, sql))
                    seconds, after = time.monotonic() - started, process.cpu_times()
                    cpu = after.user + after.system - before.user - before.system
                    if number:  # the first one warms up
                        turns.append(Turn(engine, query, side, seconds, cpu, len(answers[-1])))
                        bench.say(f"Compaction: {engine}, {query}, {side}, {seconds:.2f} s")
                if answers[0] != answers[1]:
                    raise RuntimeError(f"{engine} answers {query!r} otherwise after compaction")
    return turns


def _ask_duckdb(lake: ChargeLake, sql: str) -> list[str]:
    return sorted(map(repr, run_query(lake.catalog, sql).to_pylist()))


def _ask_spark(lake: ChargeLake, sql: str) -> list[str]:
    return sorted(map(repr, lake.lake.spark.sql(sql.replace(TABLE, f"headrace.{TABLE}")).collect()))


def _seconds(turns: list[Turn], engine: str, query: str, side: str) -> float:
    return median(turn.seconds for turn in turns if (turn.engine, turn.query, turn.side) == (engine, query, side))


def _bar(turns: list[Turn], engine: str, query: str) -> Bar:
    gain = _seconds(turns, engine, query, "small") / _seconds(turns, engine, query, "compacted")
    return at_least(LEAST_GAIN, gain, name=f"{engine}, {query}: times faster after compaction")


def _row(turns: list[Turn], engine: str, query: str, side: str, files: int) -> dict[str, object]:
    own = [turn for turn in turns if (turn.engine, turn.query, turn.side) == (engine, query, side)]
    return {
        "engine": engine,
        "query": query,
        "side": side,
        "files": files,
        "rows": own[0].rows,
        "seconds": round(median(turn.seconds for turn in own), 3),
        "cpu_seconds": round(median(turn.cpu_seconds for turn in own), 3),
        "turns": [{"seconds": round(turn.seconds, 3), "cpu_seconds": round(turn.cpu_seconds, 3)} for turn in own],
    }
