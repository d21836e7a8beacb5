"""Builds of aggregates with partial states: what they read, and that their rows equal the query's."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import pyarrow as pa
import pytest
from rich.console import Console

from headrace.build import keeping
from headrace.build.aggregates import algebra
from headrace.build.local_inputs import LocalInputs
from headrace.build.planned_inputs import PlannedInputs
from headrace.cli.render.results import show_plan
from headrace.errors import BuildError, SpecError
from headrace.iceberg.files.live_files import LiveFile
from headrace.iceberg.metadata.quarantine import QUARANTINE
from headrace.iceberg.rows.row_store import RowStore
from headrace.serving.sql.query import run_query
from headrace.sessions.building import plan
from headrace.spec.model.layers import STATE
from tests.build.layer_lake import AGGREGATES, TABLES, Event, LayerLake, assert_same
from tests.build.paths import counted_paths
from tests.support.crashing import KilledError, die_in

if TYPE_CHECKING:
    from pyiceberg.table import Table as PyIcebergTable
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

STATS = """/*
keys: [g]
*/
SELECT g, count(*) AS keys, sum(amount) AS amount, avg(amount) AS average, max(n) AS newest,
    max_by(k, struct(n, k)) FILTER (WHERE amount > 1) AS last_key, bool_or(amount > 50) AS has_large
FROM pond.latest GROUP BY g"""
FILES = {"a/latest.sql": TABLES["a/latest.sql"], "b/stats.sql": STATS}


def event(number: int, *, key: int, group: str | None = "x", cents: int = 100, n: int | None = None) -> Event:
    return Event(f"e{number}", f"k{key}", group, number if n is None else n, cents, "u", number)


def refuse(*_: object, **__: object) -> NoReturn:
    raise AssertionError("all rows of a key were asked for")


def assert_as_refreshed(layer_lake: LayerLake) -> None:
    by_increments = layer_lake.all_rows()
    layer_lake.build(full_refresh=True)
    assert_same(by_increments, layer_lake.all_rows())


def states(layer_lake: LayerLake, table: str = "stats") -> dict[str | None, str | None]:
    rows = layer_lake.catalog.load_table(f"pond.{table}").scan().to_arrow().to_pylist()
    return {row["g"]: row[STATE] for row in rows}


def test_changed_rows_are_added_and_subtracted_without_reading_others(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    layer_lake = LayerLake(tmp_path, spark, FILES)
    layer_lake.land([event(number, key=number, group="xy"[number % 2], cents=number * 100) for number in range(1, 9)])
    layer_lake.build()
    with monkeypatch.context() as patch, counted_paths() as taken:
        patch.setattr("headrace.build.strategies.aggregate.FEW_ROWS_OF_KEYS", 0)
        patch.setattr(LocalInputs, "near", refuse)
        layer_lake.land([event(20, key=20), event(21, key=1, group="x"), event(22, key=22, group="new")])
        layer_lake.build()
        layer_lake.land([event(23, key=3, group=None), event(24, key=22, group="x", cents=7)])
        layer_lake.build()
    assert set(taken) == {"LocalInputs"}
    assert set(states(layer_lake)) == {"x", "y", None}, "no row has the group new any more"
    shown = run_query(layer_lake.catalog, "SELECT * FROM pond.stats")
    assert STATE not in shown.column_names
    assert_as_refreshed(layer_lake)


def test_rows_ordered_by_two_fields_of_one_name_are_recomputed(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.build.strategies.aggregate.FEW_ROWS_OF_KEYS", 0)
    stats = "/*\nkeys: [g]\n*/\nSELECT g, max_by(k, struct(n, tags['g'] AS n, k)) AS last_key FROM pond.latest GROUP BY g"
    layer_lake = LayerLake(tmp_path, spark, {"a/latest.sql": TABLES["a/latest.sql"], "b/stats.sql": stats})
    layer_lake.land([event(1, key=1), event(2, key=2), event(3, key=3, group="y")])
    layer_lake.build()
    layer_lake.land([event(4, key=4, group="y"), event(5, key=1)])
    layer_lake.build()
    assert_as_refreshed(layer_lake)


def test_table_without_states_gets_them_key_by_key(spark: SparkSession, tmp_path: Path) -> None:
    layer_lake = LayerLake(tmp_path, spark, FILES)
    layer_lake.land([event(number, key=number, group="xy"[number % 2]) for number in range(1, 7)])
    layer_lake.build()
    with layer_lake.catalog.load_table("pond.stats").update_schema() as change:
        change.delete_column(STATE)
    layer_lake.land([event(20, key=20, group="x")])
    assert {outcome.plan.action for outcome in layer_lake.build() if outcome.plan} == {"increment"}
    stored = states(layer_lake)
    assert (stored["x"] is None, stored["y"]) == (False, None)
    layer_lake.land([event(21, key=21, group="y"), event(22, key=20, group="y")])
    layer_lake.build()
    assert None not in states(layer_lake).values()
    assert_as_refreshed(layer_lake)


def test_state_of_another_version_is_recomputed(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    layer_lake = LayerLake(tmp_path, spark, FILES)
    layer_lake.land([event(number, key=number, group="xy"[number % 2]) for number in range(1, 7)])
    layer_lake.build()
    before = states(layer_lake)
    monkeypatch.setattr(algebra, "_VERSION", 2)
    layer_lake.land([event(20, key=20, group="x")])
    assert {outcome.plan.action for outcome in layer_lake.build() if outcome.plan} == {"increment"}
    after = states(layer_lake)
    assert after["y"] == before["y"]
    assert json.loads(str(after["x"]))["v"] != json.loads(str(before["x"]))["v"]
    assert_as_refreshed(layer_lake)


@pytest.mark.parametrize("knows_past", [True, False])
def test_rows_added_and_removed_between_builds_count_once(
    knows_past: bool, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    layer_lake = LayerLake(tmp_path, spark, FILES)
    layer_lake.land([event(1, key=1), event(2, key=2), event(3, key=3, group="y")])
    layer_lake.build()
    for number, (key, group) in enumerate([(1, "y"), (4, "x"), (1, "x"), (4, "y"), (2, None), (1, "z")], start=10):
        layer_lake.land([event(number, key=key, group=group, cents=number)])
        layer_lake.build("pond.latest")
    monkeypatch.setattr(PlannedInputs, "knows_past", lambda *_: knows_past)
    layer_lake.build()
    assert_as_refreshed(layer_lake)


def test_rows_of_a_crashed_build_are_not_subtracted(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    layer_lake = LayerLake(tmp_path, spark, FILES)
    layer_lake.land([event(1, key=1), event(2, key=2)])
    layer_lake.build()

    layer_lake.land([event(3, key=1, group="y")])
    die_in(monkeypatch, keeping)[:] = ["pond.latest:kept"]
    with pytest.raises(KilledError):
        layer_lake.build()
    removed_rows = layer_lake.catalog.load_table("metadata.removed_pond_latest").scan().to_arrow().num_rows
    assert removed_rows == 1
    # The next attempt keeps the row once more. One that is still there stands for rows that the next attempt leaves alone.
    row = layer_lake.catalog.load_table("metadata.removed_pond_latest").scan().to_arrow().to_pylist()[0]
    table = layer_lake.catalog.load_table("metadata.removed_pond_latest")
    table.append(pa.Table.from_pylist([{**row, "k": "k2", "n": 2}], schema=table.scan().to_arrow().schema))
    layer_lake.build()
    assert sum(layer_lake.rows("latest").values()) == 2
    assert_as_refreshed(layer_lake)


def test_row_that_fails_an_expectation_keeps_no_state(spark: SparkSession, tmp_path: Path) -> None:
    stats = STATS.replace("keys: [g]", "keys: [g]\nexpect:\n  there are two: {that: keys > 1, on_failure: quarantine}")
    layer_lake = LayerLake(tmp_path, spark, {**FILES, "b/stats.sql": stats})
    layer_lake.land([event(1, key=1), event(2, key=2, group="y"), event(3, key=3, group="y")])
    layer_lake.build()
    assert set(states(layer_lake)) == {"y"}
    refused = layer_lake.catalog.load_table(str(QUARANTINE)).scan().to_arrow().to_pylist()
    assert [STATE in json.loads(row["original_bytes"]) for row in refused] == [False]
    layer_lake.land([event(4, key=4)])
    layer_lake.build()
    assert set(states(layer_lake)) == {"x", "y"}, "the row that was not stored counts, too"
    layer_lake.land([event(5, key=4, group="y")])
    layer_lake.build()
    assert set(states(layer_lake)) == {"y"}
    assert_as_refreshed(layer_lake)


@pytest.mark.parametrize("knows_past", [True, False])
def test_key_that_having_hides_is_shown_when_it_holds(
    knows_past: bool, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PlannedInputs, "knows_past", lambda *_: knows_past)
    stats = f"{STATS} HAVING count(*) > 1 AND coalesce(g, '') <> 'never'"
    layer_lake = LayerLake(tmp_path, spark, {**FILES, "b/stats.sql": stats})
    layer_lake.land([event(1, key=1), event(2, key=2, group="y"), event(3, key=3, group="y"), event(4, key=9, group="never")])
    layer_lake.build()
    assert set(states(layer_lake)) == {"y"}
    layer_lake.land([event(5, key=4), event(6, key=10, group="never")])
    layer_lake.build()
    assert set(states(layer_lake)) == {"x", "y"}
    layer_lake.land([event(7, key=2, group="x"), event(8, key=10, group=None)])
    layer_lake.build()
    assert set(states(layer_lake)) == {"x"}
    assert_as_refreshed(layer_lake)


def test_having_over_a_floating_point_sum_is_rejected(spark: SparkSession, tmp_path: Path) -> None:
    stats = STATS.replace("sum(amount)", "sum(CAST(amount AS DOUBLE))") + " HAVING count(*) > 1"
    with pytest.raises(SpecError, match=r"sum\(…\) of a double"):
        LayerLake(tmp_path, spark, {**FILES, "b/stats.sql": stats})


def test_changed_lookup_recomputes_its_keys(spark: SparkSession, tmp_path: Path) -> None:
    by_size = TABLES["b/by_size.sql"].replace("sum(l.amount) AS amount", "avg(l.amount) AS amount, min(l.n) AS oldest")
    layer_lake = LayerLake(tmp_path, spark, {**FILES, "b/groups.sql": TABLES["b/groups.sql"], "b/by_size.sql": by_size})
    layer_lake.land([event(1, key=1), event(2, key=2), event(3, key=3, group="y"), event(4, key=4, group="y")])
    layer_lake.build()
    for number, (key, group) in enumerate([(5, "x"), (1, "y"), (3, "z")], start=10):
        layer_lake.land([event(number, key=key, group=group, cents=number)])
        layer_lake.build()
    assert sum(layer_lake.rows("by_size").values())
    assert_as_refreshed(layer_lake)


def test_plan_describes_key_maintenance(spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    floats = STATS.replace("sum(amount)", "sum(CAST(amount AS DOUBLE))")
    layer_lake = LayerLake(
        tmp_path,
        spark,
        {
            **FILES,
            "a/by_event.sql": TABLES["a/by_event.sql"],
            "b/floats.sql": floats,
            "b/distinct.sql": AGGREGATES["d/distinct.sql"],
        },
    )

    def upkeep() -> dict[str, str]:
        plans = plan(layer_lake.settings, layer_lake.pipeline, table=None, full_refresh=False)
        show_plan(Console(), plans, pipeline=layer_lake.pipeline, as_json=True)
        return {entry["table"]: entry["upkeep"] for entry in json.loads(capsys.readouterr().out) if "upkeep" in entry}

    adds = "adds changed rows to stored states"
    distinct = "recomputes touched keys: count(DISTINCT …) needs all values of a key"
    layer_lake.land([event(1, key=1)])
    assert upkeep() == {"pond.stats": adds, "pond.floats": adds, "pond.distinct": distinct}
    layer_lake.build()
    assert upkeep() == {
        "pond.stats": adds,
        "pond.floats": "recomputes touched keys: no states are stored, as for sums and averages of floating point",
        "pond.distinct": distinct,
    }


DAYS = """/*
keys: [g]
*/
SELECT g, count(*) AS events, sum(amount) AS amount FROM pond.by_event GROUP BY g"""

JOINED = """/*
keys: [id]
constant: [at]
partition_by: [days(at)]
*/
SELECT e.id, e.at, e.amount, l.n FROM pond.by_event e LEFT JOIN pond.latest l ON l.k = e.g"""


def test_constant_columns_prune_files(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {name: TABLES[name] for name in ("a/by_event.sql", "a/latest.sql")}
    layer_lake = LayerLake(tmp_path, spark, {**files, "b/days.sql": DAYS, "b/joined.sql": JOINED})
    days = 4
    layer_lake.land([Event(f"e{day}", "k", "x", day, 100, "u", 1_440 * day) for day in range(days)])
    layer_lake.build()
    assert len(layer_lake.lake.files.of(layer_lake.catalog.load_table("pond.by_event"), None)) == days
    looked_into: list[tuple[str, int]] = []
    fetch = RowStore.fetch

    def count_files(store: RowStore, table: PyIcebergTable, files: Sequence[LiveFile], **wanted: Any) -> pa.Table:
        if wanted.get("match") is not None and "id" in wanted["match"].column_names:
            looked_into.append((table.name()[-1], len(files)))
        return fetch(store, table, files, **wanted)

    monkeypatch.setattr("headrace.build.strategies.aggregate.FEW_ROWS_OF_KEYS", 0)
    monkeypatch.setattr(RowStore, "fetch", count_files)
    layer_lake.land([Event("e2", "k", "x", 9, 700, "u", 1_440 * 2)])
    with counted_paths() as taken:
        layer_lake.build()
    assert set(taken) == {"LocalInputs"}
    # The old rows of the upsert and of the join, and for the aggregate the row as it was and as it is.
    assert {name for name, _ in looked_into} == {"by_event", "joined"}
    assert max(files for _, files in looked_into) <= 2, "the other days have other files"
    assert_as_refreshed(layer_lake)


SUMMED = """/*
keys: [g]
*/
SELECT g, count(*) AS keys,
    {sum}(CAST(concat(CAST(n AS STRING), repeat('0', 36)) AS DECIMAL(38, 0))) AS total
FROM pond.latest GROUP BY g"""
"""Sums of up to 38 digits: those of numbers above 99 have more."""


@pytest.mark.parametrize("rows_read_again", [0, 100], ids=["merged", "recomputed"])
def test_sum_that_outgrows_its_type_is_an_error_with_its_line(
    rows_read_again: int, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.build.strategies.aggregate.FEW_ROWS_OF_KEYS", rows_read_again)
    files = {**FILES, "c/summed.sql": SUMMED.format(sum="sum")}
    layer_lake = LayerLake(tmp_path, spark, files)
    layer_lake.land([event(40, key=1), event(41, key=2), event(3, key=3, group="y")])
    layer_lake.build()
    before = layer_lake.rows("summed")
    layer_lake.land([event(42, key=4), event(4, key=6, group="y")])
    with pytest.raises(BuildError, match=r"Overflow in sum of decimals(.|\n)*Nothing was published") as raised:
        layer_lake.build()
    assert raised.value.where == "pipelines/pond/c/summed.sql:5"
    assert layer_lake.rows("summed") == before, "the table keeps its rows"
    assert states(layer_lake)["y"] is not None, "other tables were built"
    (tmp_path / "pipelines/pond/c/summed.sql").write_text(SUMMED.format(sum="try_sum"), encoding="utf-8")
    layer_lake.reload()
    layer_lake.build()
    assert_as_refreshed(layer_lake)
