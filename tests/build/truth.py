"""Random pipelines: increments, one large build and a full refresh give the same rows: `python -m tests.build.truth 1000`."""

from __future__ import annotations

import os
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from headrace.servers.jars import resolve_jars
from headrace.servers.java import find_java_home
from headrace.sessions import building
from headrace.settings import load_settings
from headrace.spark.session import start_spark
from headrace.spec.model.layers import HIDDEN
from tests.build.layer_lake import LayerLake
from tests.build.paths import random_paths, scanned_refreshes
from tests.build.random_events import Landed, Traffic
from tests.build.random_pipelines import GROWN_CHANGE, RandomPipeline, random_pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SCANS = 0.1
"""The share of increments that begin on Spark's scans or change over to them."""

_SHOWN = 4
"""How many rows of a difference are shown."""

Rows = Mapping[str, Counter[str]]


@dataclass
class Played:
    """The outcome of a pipeline: rounds, increments by path, and what differs, if anything."""

    pipeline: RandomPipeline
    rounds: int = 0
    paths: Counter[str] = field(default_factory=Counter)
    differences: list[str] = field(default_factory=list)


def play(seed: int, spark: SparkSession, folder: Path, *, tables: int | None = None, rounds: int | None = None) -> Played:
    """Play the pipeline of a seed round by round, then compare its rows with one large build's and a full refresh's.

    All choices follow from the seed: which tables there are, which events come when, and which path each build takes.
    """
    random = Random(seed)
    pipeline = random_pipeline(random, tables=tables, rounds=rounds)
    played, traffic = Played(pipeline), Traffic(random, pipeline.keys)
    landed: list[Landed] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(building, "_AT_ONCE", 1)  # side by side, builds would draw their paths in any order
        small = LayerLake(folder / "small", spark, pipeline.files)
        for number in range(pipeline.rounds):
            _grow(small, pipeline, traffic, number / pipeline.rounds)
            with random_paths(random, scans=_SCANS) as paths:
                if random.random() < 0.1:  # the other tables then get the changes of two landings at once
                    landed += _land(small, traffic.batch())
                    _build(small, random.choice(pipeline.tables).relation.name)
                landed += _land(small, traffic.batch())
                _build(small)
            played.paths += paths
            played.rounds += 1
        _grow(small, pipeline, traffic, 1.0)
        _build(small)
        by_increments = Snapshot.of(small)
        big = LayerLake(folder / "big", spark, pipeline.files)
        _grow(big, pipeline, Traffic(random, 1), 1.0)
        random.shuffle(landed)
        _land(big, landed)
        with scanned_refreshes():
            big.build()
        played.differences += differences(by_increments.comparable, Snapshot.of(big).comparable, "one large build")
        small.build(full_refresh=True)
        played.differences += differences(by_increments.rows, Snapshot.of(small).rows, "a full refresh")
    return played


def differences(rows_by_table: Rows, wanted: Rows, what: str) -> list[str]:
    """Return a text for each table whose rows differ."""
    texts = []
    for table in wanted:
        missing, surplus = wanted[table] - rows_by_table[table], rows_by_table[table] - wanted[table]
        if missing or surplus:
            only = {"increments": surplus, what: missing}
            texts += [
                f"{table}: {rows.total()} rows only with {name}\n" + "\n".join(f"    {row}" for row in sorted(rows)[:_SHOWN])
                for name, rows in only.items()
                if rows
            ]
    return texts


@dataclass(frozen=True)
class Snapshot:
    """The rows of all tables of a lake. `comparable` rows don't depend on the order of events.

    The id of an entity is that of the record which was its oldest when it came: instead, `comparable` names its smallest key.
    """

    rows: Rows
    comparable: Rows

    @classmethod
    def of(cls, lake: LayerLake) -> Snapshot:
        tables = {table.table.name: _rows(lake, table.table.name) for table in lake.pipeline.tables}
        smallest: dict[str, str] = {}
        for table in lake.pipeline.tables:
            for row in tables[table.table.name] if table.kind == "entities" else ():
                key = repr([row[name] for name in table.keys])
                smallest[row["entity_id"]] = min(smallest.get(row["entity_id"], key), key)
        return cls(
            {name: Counter(_text(row) for row in rows) for name, rows in tables.items()},
            {name: Counter(_text(_comparable(row, smallest)) for row in rows) for name, rows in tables.items()},
        )


def _rows(lake: LayerLake, table: str) -> list[dict[str, Any]]:
    rows = lake.catalog.load_table(f"pond.{table}").scan().to_arrow()
    return list(rows.drop_columns([name for name in HIDDEN if name in rows.column_names]).to_pylist())


def _comparable(row: Mapping[str, Any], smallest: Mapping[str, str]) -> dict[str, Any]:
    return {
        name: smallest.get(value, value) if isinstance(value, str) else value
        for name, value in row.items()
        if name != "previous_entity_ids"
    }


def _text(row: Mapping[str, Any]) -> str:
    return repr(sorted(row.items()))


def _grow(lake: LayerLake, pipeline: RandomPipeline, traffic: Traffic, share: float) -> None:
    """Widen the schemas that have grown by this share of the rounds: one by a change of files, one by what landed."""
    due = {stream for stream, at in pipeline.grows_at.items() if at <= share} - traffic.grown
    traffic.grown |= due
    if "events" in due:
        for name, text in pipeline.grown_files.items():
            (lake.folder / "pipelines/pond" / name).write_text(text, encoding="utf-8")
        lake.reload()
    if "changes" in due:
        lake.widen(GROWN_CHANGE, stream="changes")


def _build(lake: LayerLake, table: str | None = None) -> None:
    if any(outcome.grown for outcome in lake.build(table)):
        lake.reload()  # as a live run does: the next build knows the new columns


def _land(lake: LayerLake, events: list[Landed]) -> list[Landed]:
    for stream in ("events", "changes"):
        rows = [event for event in events if event.stream == stream]
        if rows:
            lake.land(rows, stream=stream)
    return events


def check(rounds: int, *, seed: int) -> bool:
    """Play pipelines until there were `rounds` rounds, the first with `seed`, each next with one more; return if all agree."""
    kinds, paths, failed = Counter[str](), Counter[str](), []
    started, done, pipelines = time.monotonic(), 0, 0
    with tempfile.TemporaryDirectory() as folder:
        settings = load_settings(flags={"spark.master": "local[2]"}, environ={}, folder=Path(folder))
        spark = start_spark(
            settings,
            java_home=find_java_home(os.environ, cache=settings.home / "java"),
            jars=resolve_jars("spark", report=print),
        )
        while done < rounds:
            number = seed + pipelines
            pipelines += 1
            problem = ""
            try:
                with tempfile.TemporaryDirectory(dir=folder) as place:
                    played = play(number, spark, Path(place))
                problem = "\n".join(played.differences)
            except Exception:  # a pipeline that fails is reported, and the next one is played
                played = Played(random_pipeline(Random(number)))
                played.rounds = played.pipeline.rounds
                problem = traceback.format_exc()
            done += played.rounds
            kinds += Counter(table.label for table in played.pipeline.tables)
            paths += played.paths
            if problem:
                failed.append(number)
                show_failure(number, played.pipeline, problem)
            print(f"seed {number}: {done} of {rounds} rounds, {time.monotonic() - started:.0f} s", flush=True)
        spark.stop()
    print(f"{done} rounds of {pipelines} pipelines from seed {seed} in {time.monotonic() - started:.0f} s")
    print(f"Tables: {dict(sorted(kinds.items()))}")
    print(f"Increments by path: {dict(sorted(paths.items()))}")
    print(f"Failed seeds: {failed}" if failed else "Increments, one large build and a full refresh have the same rows")
    return not failed


def show_failure(seed: int, pipeline: RandomPipeline, problem: str) -> None:
    """Print what it takes to understand a failure and to play it again."""
    print(f"--- seed {seed} failed; play it again with: python -m tests.build.truth 1 {seed}")
    for name, text in pipeline.grown_files.items() if "events" in pipeline.grows_at else pipeline.files.items():
        if not name.startswith(("schemas/", "pipeline")):
            print(f"--- {name}\n{text}")
    print(f"--- {problem}", flush=True)


if __name__ == "__main__":
    agreed = check(int(sys.argv[1]) if len(sys.argv) > 1 else 1000, seed=int(sys.argv[2]) if len(sys.argv) > 2 else 1)
    sys.exit(not agreed)
