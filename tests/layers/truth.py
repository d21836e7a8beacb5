"""Many small builds against one big one and a full refresh: `python -m tests.layers.truth 1000`."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path
from random import Random

from headrace.services.jars import resolve_jars
from headrace.services.java import find_java_home
from headrace.services.spark import start_spark
from headrace.settings import load_settings
from tests.layers.pond import Pond, assert_same
from tests.layers.test_one_truth import events_of


def hold(builds: int, *, seed: int) -> None:
    """Lands one to three events and builds, `builds` times over; ends with an AssertionError where tables differ."""
    random = Random(seed)
    events = events_of(random, builds * 2)
    with tempfile.TemporaryDirectory() as folder:
        settings = load_settings(flags={"spark.master": "local[2]"}, environ={}, folder=Path(folder))
        spark = start_spark(
            settings,
            java_home=find_java_home(os.environ, cache=settings.home / "java"),
            jars=resolve_jars("spark", report=print),
        )
        small, big = Pond(Path(folder) / "small", spark), Pond(Path(folder) / "big", spark)
        started, position = time.monotonic(), 0
        for number in range(builds):
            count = random.randint(1, 3) if number + 1 < builds else len(events) - position
            small.land(events[position : position + count])
            small.build()
            position += count
            if (number + 1) % 10 == 0:
                print(f"{number + 1} of {builds} builds, {time.monotonic() - started:.0f} s", flush=True)
        found = small.all_rows()
        random.shuffle(events)
        big.land(events)
        big.build()
        assert_same(found, big.all_rows())
        small.build(full_refresh=True)
        assert_same(found, small.all_rows())
        spark.stop()
    print(f"{builds} small builds, one big one and a full refresh of {len(found)} tables have the same rows")


if __name__ == "__main__":
    hold(int(sys.argv[1]) if len(sys.argv) > 1 else 100, seed=int(sys.argv[2]) if len(sys.argv) > 2 else 1)
