"""The pipelines that come with Headrace have no stale joins: a full refresh never differs from the increments.

Samples come in random batches, and what is looked up comes after what it is joined to.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pytest

from headrace.spec import load_pipeline
from headrace.spec.model.layers import BUILD_ID, CARRIED
from headrace.spec.model.pipeline import Pipeline, Stream
from tests.build.paths import random_paths
from tests.pipelines.engine_build import EngineBuild
from tests.pipelines.test_payments_generators import decode
from tests.support.samples import NAMES, values_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BATCHES = 3
EARLY = {
    "payments": ("charges",),
    "commerce": ("shopify_orders", "stripe_charges"),
    "storefront": ("order_items",),
    "weather": ("readings",),
}
"""The streams whose rows drive, of each pipeline that has layer tables. All others begin with the second batch."""


def good_messages(stream: Stream, pipeline: Pipeline) -> list[bytes]:
    sample = values_of(stream, pipeline.folder / "sample" / f"{stream.name}.jsonl")
    messages = [message for message in sample if message is not None]
    bad = decode(stream, messages).bad
    return [message for index, message in enumerate(messages) if index not in bad]


def cut_sample(pipeline: Pipeline, random: Random) -> Iterator[Mapping[str, list[bytes]]]:
    """Return the sample in batches; every stream is cut at random places."""
    parts: list[dict[str, list[bytes]]] = [{} for _ in range(BATCHES)]
    for stream in pipeline.streams:
        messages = good_messages(stream, pipeline)
        first = 0 if stream.name in EARLY[pipeline.name] else 1
        cuts = sorted(random.choices(range(len(messages) + 1), k=BATCHES - 1 - first))
        borders = [*([0] * (first + 1)), *cuts, len(messages)]
        for part, start, end in zip(parts, borders, borders[1:], strict=False):
            part[stream.name] = messages[start:end]
    return iter(parts)


def all_rows(engine: EngineBuild, pipeline: Pipeline) -> dict[str, Counter[str]]:
    rows_by_table = {}
    for table in pipeline.tables:
        rows = engine.lake.catalog.load_table(str(table.table)).scan().to_arrow().to_pylist()
        shown = ([item for item in row.items() if item[0] not in (BUILD_ID, CARRIED)] for row in rows)
        rows_by_table[str(table.table)] = Counter(map(repr, shown))
    return rows_by_table


def test_no_lookup_of_the_pipelines_is_frozen(tmp_path: Path) -> None:
    for name in NAMES:
        tables = load_pipeline(name, environ={}, folder=tmp_path).tables
        assert bool(tables) == (name in EARLY)
        for table in tables:
            assert table.kind == "full" or table.follows.keys() == set(table.lookups), table.table


@pytest.mark.spark
@pytest.mark.parametrize("name", EARLY)
def test_increments_with_late_lookups_are_a_full_refresh(name: str, spark: SparkSession, tmp_path: Path) -> None:
    pipeline = load_pipeline(name, environ={}, folder=tmp_path)
    random = Random(f"late {name}")
    engine = EngineBuild(tmp_path, spark, pipeline)
    with random_paths(random, scans=0.1):
        for batch in cut_sample(pipeline, random):
            engine.land_messages(batch)
            engine.build()
    by_increments = all_rows(engine, pipeline)
    engine.build(full_refresh=True)
    wanted = all_rows(engine, pipeline)
    for table, rows in wanted.items():
        assert (list(rows - by_increments[table])[:3], list(by_increments[table] - rows)[:3]) == ([], []), (
            f"{table}: (missing, surplus)"
        )
