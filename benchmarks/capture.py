"""Change data capture: from a commit in Postgres to the moment a committed snapshot of `shape` has it.

`headrace run storefront` captures, lands and builds every table of the pipeline, with its default settings, in a process of
its own that starts Postgres, the registry and Connect. First many changes come at once, then 500 a second.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from subprocess import Popen
from typing import Any

import psycopg
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.catalog import Catalog

from benchmarks.bench import Bench
from benchmarks.builds_seen import BuildsSeen, watch_builds
from benchmarks.commands import headrace, wait_for
from benchmarks.meter import measure
from benchmarks.shop_load import TABLES, Transaction, change_rows
from headrace.iceberg.catalog.tables import open_catalog
from headrace.servers.postgres import postgres
from headrace.servers.source_database import ready_database
from headrace.settings import load_settings
from headrace.spec import load_pipeline

CHANGES = 200_000
RATE = 500
_AT_ONCE = 1_000
_SMALL = 50
_WARM_UP_SECONDS = 60
_SECONDS = 120
_START_SECONDS = 300.0
_DRAIN_SECONDS = 600.0
_ALL = ("shape", "stage", "raw")
_WAYS = {table: [f"{layer}.storefront.{table}" for layer in _ALL] for table in TABLES}
_CUSTOMER = (
    "INSERT INTO customers (public_id, email, full_name) VALUES (gen_random_uuid(), 'bench@example.com', 'Bench') RETURNING id"
)


@dataclass(frozen=True)
class Captured:
    """How long changes took, in all and from place to place, as medians in seconds; and what the application cost meanwhile."""

    case: str
    changes: int
    changes_per_second: float
    median_seconds: float
    p99_seconds: float
    to_kafka: float
    to_raw: float
    to_stage: float
    to_shape: float
    cpu_share: float
    peak_mb: int


def measure_capture(bench: Bench) -> list[Captured]:
    """Return the burst, then the steady rate."""
    folder = (bench.folder / "capture").resolve()
    folder.mkdir()
    settings = load_settings(flags={}, environ={}, folder=folder)
    catalog = open_catalog(settings)
    pipeline = load_pipeline("storefront", environ={}, folder=folder)
    database = Path(settings.catalog_uri.removeprefix("sqlite:///"))
    assert pipeline.capture is not None
    watched = [name for way in _WAYS.values() for name in way]
    with (
        postgres(settings, report=bench.say),
        watch_builds(database, watched) as seen,
        headrace(bench, folder, "run", "storefront") as application,
        psycopg.connect(ready_database(settings, pipeline.capture, report=bench.say).dsn, autocommit=True) as connection,
    ):
        customer = int((connection.execute(_CUSTOMER).fetchone() or (0,))[0])
        list(change_rows(connection, changes=10 * _SMALL, customer=customer, at_once=_SMALL, rate=RATE))
        wait_for(
            lambda: all(seen.visible(way) for way in _WAYS.values()),
            [application],
            seconds=_START_SECONDS,
            what="shape was not built",
        )
        warm_up, seconds = (_WARM_UP_SECONDS // 4, _SECONDS // 4) if bench.quick else (_WARM_UP_SECONDS, _SECONDS)
        cases = {
            "warm-up": (RATE * warm_up, _SMALL, RATE),
            "burst": (bench.scaled(CHANGES), _AT_ONCE, None),
            "steady": (RATE * seconds, _SMALL, RATE),
        }
        measured = []
        for case, (changes, at_once, rate) in cases.items():
            bench.say(f"Capture: {case}, {changes:,} changes")
            with measure(application.pid) as reading:
                done = list(change_rows(connection, changes=changes, customer=customer, at_once=at_once, rate=rate))
                _wait_to_see(catalog, seen, [application], until=done[-1].committed)
            ages = _ages(catalog, seen, done)
            cores = len(os.sched_getaffinity(0))
            share = round(reading.cpu_seconds / reading.seconds / cores, 2)
            measured.append(_captured(case, done, ages, share, round(reading.peak_bytes / 1e6)))
    return measured[1:]


def _wait_to_see(catalog: Catalog, seen: BuildsSeen, processes: Sequence[Popen[bytes]], *, until: float) -> None:
    """Wait until all that was committed before `until` is in shape."""

    def is_seen() -> bool:
        for way in _WAYS.values():
            moments = _moments_of(catalog, way[-1], since=until - 1)
            newest = max((checkpoint for checkpoint, _ in seen.visible(way)), default=0)
            if not moments["checkpoint_id"] or max(moments["checkpoint_id"]) > newest:
                return False
        return True

    wait_for(is_seen, processes, seconds=_DRAIN_SECONDS, what="shape does not keep up", every=1.0)


def _ages(catalog: Catalog, seen: BuildsSeen, done: Sequence[Transaction]) -> dict[str, list[float]]:
    """Return for every change when it came to each place, in seconds after its commit."""
    ages: dict[str, list[float]] = {place: [] for place in ("kafka", "raw", "stage", "shape")}
    since, until = done[0].committed - 1, done[-1].committed + 1
    for way in _WAYS.values():
        raw = _moments_of(catalog, way[-1], since=since)
        landed = seen.landed[way[-1]]
        places = {"stage": seen.visible(way[1:]), "shape": seen.visible(way)}
        for committed, produced, checkpoint in zip(raw["committed"], raw["produced"], raw["checkpoint_id"], strict=True):
            if committed > until:
                continue
            ages["kafka"].append(produced - committed)
            ages["raw"].append(landed[checkpoint] - committed)
            for place, visible in places.items():
                ages[place].append(next(moment for newest, moment in visible if newest >= checkpoint) - committed)
    return ages


def _moments_of(catalog: Catalog, raw: str, *, since: float) -> dict[str, list[Any]]:
    """Return when each change that was committed from a moment on was, when Kafka got it, and its checkpoint."""
    scan = catalog.load_table(raw).scan(
        row_filter="op is not null", selected_fields=("source", "kafka_timestamp", "checkpoint_id")
    )
    rows = scan.to_arrow()
    committed = pc.divide(pc.struct_field(rows["source"], "ts_us").cast(pa.float64()), 1e6)
    produced = pc.divide(rows["kafka_timestamp"].cast(pa.timestamp("us", "UTC")).cast(pa.int64()).cast(pa.float64()), 1e6)
    moments = pa.table({"committed": committed, "produced": produced, "checkpoint_id": rows["checkpoint_id"]})
    return dict(moments.filter(pc.greater_equal(moments["committed"], since)).to_pydict())


def _captured(
    case: str, done: Sequence[Transaction], ages: Mapping[str, list[float]], cpu_share: float, peak_mb: int
) -> Captured:
    total = sorted(ages["shape"])
    changes = sum(turn.changes for turn in done)
    ends = done[0].committed + max(total) if case == "burst" else done[-1].committed
    steps = {place: median(values) for place, values in ages.items()}
    return Captured(
        case,
        changes,
        round(changes / (ends - done[0].committed)),
        round(median(total), 2),
        round(total[int(len(total) * 0.99)], 2),
        round(steps["kafka"], 2),
        round(steps["raw"] - steps["kafka"], 2),
        round(steps["stage"] - steps["raw"], 2),
        round(steps["shape"] - steps["stage"], 2),
        cpu_share,
        peak_mb,
    )
