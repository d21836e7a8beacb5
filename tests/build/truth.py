"""Many small builds against one big one and a full refresh: `python -m tests.build.truth 1000`."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections import Counter
from itertools import islice
from pathlib import Path
from random import Random

from headrace.services.jars import resolve_jars
from headrace.services.java import find_java_home
from headrace.services.spark import start_spark
from headrace.settings import load_settings
from tests.build.paths import random_paths, scanned_refreshes
from tests.build.pond import AGGREGATES, TABLES, Event, Pond, assert_same
from tests.build.test_one_truth import events_of


def hold(builds: int, *, seed: int) -> None:
    """Lands one to three events and builds, until tables were built `builds` times; an AssertionError where tables differ."""
    random = Random(seed)
    events = iter(events_of(random, builds * 3))
    landed: list[Event] = []
    with tempfile.TemporaryDirectory() as folder:
        settings = load_settings(flags={"spark.master": "local[2]"}, environ={}, folder=Path(folder))
        spark = start_spark(
            settings,
            java_home=find_java_home(os.environ, cache=settings.home / "java"),
            jars=resolve_jars("spark", report=print),
        )
        tables = {**TABLES, **AGGREGATES}
        small, big = (Pond(Path(folder) / name, spark, tables) for name in ("small", "big"))
        started, built, rounds, taken = time.monotonic(), 0, 0, Counter[str]()
        while built < builds:
            part = list(islice(events, random.randint(1, 3)))
            small.land(part)
            landed += part
            with random_paths(random) as paths:
                built += sum(outcome.built is not None for outcome in small.build())
            taken += paths
            rounds += 1
            if rounds % 10 == 0:
                print(f"{built} of {builds} builds, {time.monotonic() - started:.0f} s", flush=True)
        found = small.all_rows()
        random.shuffle(landed)
        big.land(landed)
        with scanned_refreshes():
            big.build()
        assert_same(found, big.all_rows())
        small.build(full_refresh=True)
        assert_same(found, small.all_rows())
        spark.stop()
    print(f"{built} small builds in {rounds} rounds, one big one and a full refresh of {len(found)} tables have the same rows")
    print(f"Increments by how they read: {dict(taken)}")


if __name__ == "__main__":
    hold(int(sys.argv[1]) if len(sys.argv) > 1 else 1000, seed=int(sys.argv[2]) if len(sys.argv) > 2 else 1)
