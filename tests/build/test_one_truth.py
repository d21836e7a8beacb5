"""Every kind of table has the same rows for any order of events and any split into builds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pytest

from tests.build.layer_lake import AGGREGATES, TABLES, Event, LayerLake, assert_same
from tests.build.paths import random_paths, scanned_refreshes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def events_of(random: Random, count: int) -> list[Event]:
    """Return events of few keys, out of order, with ties, nulls, deletions and redeliveries."""
    events: list[Event] = []
    for number in range(count):
        if events and random.random() < 0.1:
            events.append(random.choice(events))
            continue
        events.append(
            Event(
                id=f"e{number}",
                k=f"k{random.randrange(6)}",
                g=random.choice(["x", "y", "z", None]),
                n=random.randrange(count),
                cents=random.randrange(10_000),
                op=random.choice("uuud"),
                minutes=random.randrange(4 * 24 * 60),
            )
        )
    return events


def cut(events: list[Event], random: Random, parts: int) -> Iterator[list[Event]]:
    borders = sorted(random.sample(range(1, len(events)), parts - 1)) if parts > 1 else []
    for start, end in zip([0, *borders], [*borders, len(events)], strict=True):
        yield events[start:end]


def test_small_builds_a_big_one_and_a_full_refresh_agree(spark: SparkSession, tmp_path: Path) -> None:
    seed = Random().randrange(2**32)
    print(f"seed {seed}")  # pytest shows it if the test fails
    random = Random(seed)
    events = events_of(random, 30)
    tables = {**TABLES, **AGGREGATES}
    small = LayerLake(tmp_path / "small", spark, tables)
    with random_paths(random) as taken:
        for part in cut(events, random, parts=3):
            small.land(part)
            small.build()
    assert taken["LocalInputs"]
    assert taken["ScannedInputs"]
    by_parts = small.all_rows()
    small.build(full_refresh=True)
    assert_same(by_parts, small.all_rows())
    random.shuffle(events)
    big = LayerLake(tmp_path / "big", spark, tables)
    big.land(events)
    with scanned_refreshes():
        big.build()
    assert_same(big.all_rows(), by_parts)


def test_late_event_stays_behind_a_deletion_whatever_columns_are_called(spark: SparkSession, tmp_path: Path) -> None:
    settings = "keys: [k]\nsequence_by: valid_from\napply_as_deletes: op = 'd'"
    layer_lake = LayerLake(
        tmp_path, spark, {"a/latest.sql": f"/*\n{settings}\n*/\nSELECT k, n AS valid_from, g, op FROM pond.events"}
    )
    for number, op in ((1, "u"), (3, "d"), (2, "u")):
        layer_lake.land([Event(f"e{number}", "k", "x", number, 100, op, number)])
        layer_lake.build()
    assert not layer_lake.rows("latest")


def test_build_changes_nothing_where_nothing_changed(spark: SparkSession, tmp_path: Path) -> None:
    layer_lake = LayerLake(tmp_path, spark)
    events = events_of(Random(5), 30)
    layer_lake.land(events)
    layer_lake.build()
    assert [outcome.built for outcome in layer_lake.build()] == [None] * len(layer_lake.pipeline.tables)
    layer_lake.land(events[:10])
    built = {outcome.table.table.name: outcome.built for outcome in layer_lake.build() if outcome.built}
    assert {name for name, result in built.items() if result and result.rows} == {"appended"}
    assert "groups" not in built


def test_row_filtered_out_downstream_is_removed(spark: SparkSession, tmp_path: Path) -> None:
    tables = {
        "a/latest.sql": TABLES["a/latest.sql"],
        "b/visible.sql": "/*\nkeys: [k]\n*/\nSELECT k, g FROM pond.latest WHERE g IS NOT NULL",
        "c/named.sql": "/*\nkeys: [k]\n*/\nSELECT k, g FROM pond.visible",
    }
    layer_lake = LayerLake(tmp_path, spark, tables)
    layer_lake.land([Event("e1", "k1", "x", 1, 1, "u", 1)])
    layer_lake.build()
    gone = Event("e2", "k1", None, 2, 1, "u", 2)
    layer_lake.land([gone, *(Event(f"e{number}", f"k{number}", "y", number, 1, "u", number) for number in (3, 4, 5))])
    layer_lake.build()
    by_increments = layer_lake.all_rows()
    assert sum(by_increments["visible"].values()) == 3
    layer_lake.build(full_refresh=True)
    assert_same(by_increments, layer_lake.all_rows())


def test_key_determined_by_a_lookup_is_removed_with_it(spark: SparkSession, tmp_path: Path) -> None:
    names = ("a/latest.sql", "b/groups.sql", "b/by_size.sql")
    layer_lake = LayerLake(tmp_path, spark, {name: TABLES[name] for name in names})
    layer_lake.land([Event(f"e{number}", f"k{number}", "x", 1, number, "u", 1) for number in (1, 2)])
    layer_lake.build()
    assert _sizes(layer_lake) == {2: 2}
    layer_lake.land([Event("e3", "k3", "x", 1, 3, "u", 1)])
    layer_lake.build()
    assert _sizes(layer_lake) == {3: 3}, "two old rows have another key now"
    layer_lake.land([Event("e4", "k1", "y", 2, 4, "u", 1), Event("e5", "k2", "z", 2, 5, "u", 1)])
    layer_lake.build()
    assert _sizes(layer_lake) == {}, "all are alone, and not shown"
    by_increments = layer_lake.all_rows()
    layer_lake.build(full_refresh=True)
    assert_same(by_increments, layer_lake.all_rows())


def _sizes(layer_lake: LayerLake) -> dict[int, int]:
    rows = layer_lake.catalog.load_table("pond.by_size").scan().to_arrow().to_pylist()
    return {row["size"]: row["members"] for row in rows}
