"""Rolling features, built in steps with late events among them, against a plain window query over all charges at once.

The query is that of the payments pipeline, on a raw table that is filled directly. Charges come roughly in the order of their
time; some come up to three builds late, some twice, and some change afterwards.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

import headrace
from benchmarks.bench import Bench
from benchmarks.charge_lake import ChargeLake
from benchmarks.charge_rows import DAY_MS, charge_rows, draw, number_charges
from benchmarks.results import Bar, at_most
from headrace.sessions.shared_spark import spark_session
from headrace.settings import load_settings
from headrace.spec.model.layers import BUILD_ID

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CHARGES = 1_000_000
BUILDS = 12
DAYS = 4
_LATE, _TWICE, _CHANGED = 30, 10, 10
"""So many of a thousand."""
_LATEST = 3
_PAYMENTS = Path(headrace.__file__).parent / "pipelines" / "payments"
_FEATURES = (_PAYMENTS / "features" / "charge_features.sql").read_text(encoding="utf-8")
_TABLES = {
    "cleaned/charges.sql": """/*
keys: [event_id]
sequence_by: updated_at
constant: [created_at]
partition_by: [days(created_at)]
*/
SELECT event_id, charge_id, customer_id, merchant_id, provider, amount, currency, payment_method_type, card_brand, card_country,
    billing_country, `3ds_authenticated`, risk_score, created_at, updated_at
FROM bench.raw_charges
""",
    "features/charge_features.sql": _FEATURES.replace("payments_db.payment_charges_cleaned", "bench.charges"),
}
_NEWEST = """
SELECT * FROM (
    SELECT *, row_number() OVER (PARTITION BY event_id ORDER BY updated_at DESC) AS place FROM {raw}
) WHERE place = 1
"""


def compare_rolling(bench: Bench) -> tuple[list[dict[str, object]], tuple[Bar, ...]]:
    """Return how long the builds and the plain query took, and how many rows differ."""
    count = bench.scaled(CHARGES)
    settings = load_settings(flags={"home": str(bench.folder / "rolling")}, environ={}, folder=bench.folder)
    with spark_session(settings, report=bench.say) as spark:
        lake = ChargeLake((bench.folder / "rolling-lake").resolve(), spark, _TABLES)
        arrivals = _arrivals(count)
        seconds: list[float] = []
        for number, part in sorted(arrivals.partition_by("build", as_dict=True).items()):
            lake.land(charge_rows(part))
            started = time.monotonic()
            lake.build("charge_features")
            seconds.append(time.monotonic() - started)
            bench.say(f"Rolling: build {number[0]}, {part.height:,} events, {seconds[-1]:.1f} s")
        started = time.monotonic()
        differing, rows = _compare(lake, spark)
        plain_seconds = time.monotonic() - started
    if rows != count:
        raise RuntimeError(f"there are features of {rows:,} charges, and {count:,} were made")
    measured: dict[str, object] = {
        "charges": count,
        "events": arrivals.height,
        "builds": len(seconds),
        "late_events": arrivals.filter(pl.col("build") > pl.col("due")).height,
        "build_seconds": round(sum(seconds), 1),
        "last_build_seconds": round(seconds[-1], 1),
        "compare_seconds": round(plain_seconds, 1),
        "differing_rows": differing,
        "turns": [round(reading, 2) for reading in seconds],
    }
    return [measured], (at_most(0, differing, name="rolling features: rows that differ from a plain window query"),)


def _arrivals(count: int) -> pl.DataFrame:
    """Return every event with the build that it comes in: the first version of each charge, and what follows some."""
    per_build = -(-count // BUILDS)
    step = DAYS * DAY_MS // count
    charges = number_charges(0, count).with_columns(
        created_ms=pl.col("number") * step + draw(20, step * 2 + 1),
        version=pl.lit(0, pl.Int64),
        due=pl.col("number") // per_build,
    )
    late = pl.when(draw(21, 1000) < _LATE).then(1 + draw(22, _LATEST)).otherwise(0)
    first = charges.with_columns(build=pl.min_horizontal(pl.col("due") + late, BUILDS - 1))
    again = charges.filter(draw(23, 1000) < _TWICE).with_columns(build=pl.min_horizontal(pl.col("due") + 1, BUILDS - 1))
    changed = charges.filter(draw(24, 1000) < _CHANGED).with_columns(
        version=pl.lit(1, pl.Int64), build=pl.min_horizontal(pl.col("due") + draw(25, _LATEST), BUILDS - 1)
    )
    return pl.concat([first, again, changed])


def _compare(lake: ChargeLake, spark: SparkSession) -> tuple[int, int]:
    """Return how many rows differ, counted on both sides as `exceptAll` does, and how many rows there are."""
    from pyspark.sql import functions as F  # noqa: N812

    session = lake.lake.spark
    features = _read(lake, "charge_features").drop(BUILD_ID)
    _read(lake, "raw_charges").createOrReplaceTempView("rolling_raw")
    session.sql(_NEWEST.format(raw="rolling_raw")).createOrReplaceTempView("rolling_charges")
    plain = session.sql(_FEATURES.replace("payments_db.payment_charges_cleaned", "rolling_charges"))
    names = [f"`{name}`" for name in features.columns]
    both = features.select(*names, F.lit(1).alias("side")).union(plain.select(*names, F.lit(-1).alias("side")))
    surplus = both.groupBy(*names).agg(F.sum("side").alias("surplus")).where("surplus <> 0")
    counts = surplus.agg(F.coalesce(F.sum(F.abs("surplus")), F.lit(0)).alias("differing")).first()
    assert counts is not None
    return int(counts["differing"]), lake.count("charge_features")


def _read(lake: ChargeLake, name: str) -> DataFrame:
    from headrace.iceberg.files.spark_files import read_snapshot
    from headrace.spec.model.pipeline import TableName

    snapshot = lake.catalog.load_table(f"bench.{name}").current_snapshot()
    assert snapshot is not None
    return read_snapshot(lake.lake.spark, TableName("bench", name), snapshot.snapshot_id)
