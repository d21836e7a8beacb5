"""Changes of lookups reach exactly the rows that are joined with them, on both read paths."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from headrace.build import local_inputs
from headrace.build.net_changes import net_rows
from headrace.build.plan import TablePlan, plan_table
from headrace.build.planned_inputs import PlannedInputs
from headrace.build.readers import ReadSnapshots
from headrace.build.rows import ChangeSet, LocalRows, Rows, SparkRows
from headrace.build.text_keys import join_values
from headrace.iceberg.commits import build_commit, history
from headrace.iceberg.ledgers.build import InputState
from headrace.spec.model.layers import LayerTable
from headrace.spec.model.pipeline import TableName
from headrace.spec.model.types import Column, Primitive
from tests.build.layer_lake import TABLES, Event, LayerLake, assert_same
from tests.build.paths import counted_paths

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

GROUPS = {name: TABLES[name] for name in ("a/latest.sql", "b/groups.sql")}


@pytest.fixture(params=["LocalInputs", "ScannedInputs"])
def path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Let increments read in one way, and check that they did."""
    monkeypatch.setattr(TablePlan, "reads_few", property(lambda plan: request.param == "LocalInputs"))
    monkeypatch.setattr(local_inputs, "SMALL_LOOKUP", 0)
    with counted_paths() as taken:
        yield request.param
    assert set(taken) == {request.param}


def event(number: int, k: str, g: str, n: int = 1, cents: int = 1) -> Event:
    return Event(f"e{number}", k, g, n, cents, "u", number)


def check_refresh(layer_lake: LayerLake) -> None:
    by_increments = layer_lake.all_rows()
    layer_lake.build(full_refresh=True)
    assert_same(by_increments, layer_lake.all_rows())


def processed(layer_lake: LayerLake, name: str) -> int:
    """Return how many rows the next build of a table computes."""
    outcomes = {outcome.table.table.name: outcome.built for outcome in layer_lake.build()}
    built = outcomes[name]
    return built.entry.rows_processed if built else 0


def test_change_is_followed_through_another_lookup(spark: SparkSession, tmp_path: Path, path: str) -> None:
    names = ("a/latest.sql", "a/by_event.sql", "b/groups.sql", "b/chained.sql")
    layer_lake = LayerLake(tmp_path, spark, {name: TABLES[name] for name in names})
    layer_lake.land([event(1, "k1", "x"), event(2, "k1", "x", n=2), event(3, "k2", "y")])
    layer_lake.build()
    layer_lake.land([event(4, "k3", "x")])
    assert processed(layer_lake, "chained") == 3, "the new row, and both of k1, whose group has grown; not the one of k2"
    layer_lake.land([event(5, "k1", "y", n=3)])
    layer_lake.build()
    assert {row["keys_in_group"] for row in _rows(layer_lake, "chained") if row["id"] in ("e1", "e2", "e3")} == {2}
    check_refresh(layer_lake)


def test_change_that_the_query_does_not_read_touches_no_row(spark: SparkSession, tmp_path: Path) -> None:
    table = """/*
keys: [k]
*/
SELECT l.k, s.keys FROM pond.latest l LEFT JOIN pond.groups s ON s.g = l.g"""
    layer_lake = LayerLake(tmp_path, spark, {**GROUPS, "b/counted.sql": table})
    layer_lake.land([event(number, f"k{number}", "x") for number in range(5)])
    layer_lake.build()
    layer_lake.land([event(9, "k1", "x", n=2, cents=500)])
    assert processed(layer_lake, "counted") == 1, "the group's amount is another one, its keys are not"
    layer_lake.land([event(10, "k9", "x")])
    assert processed(layer_lake, "counted") == 6
    for number in range(3):  # what came and went between two builds of the reader cancels out
        layer_lake.land([event(20 + number, "k1", "y" if number % 2 == 0 else "x", n=10 + number)])
        layer_lake.build("pond.latest")
        layer_lake.build("pond.groups")
    layer_lake.build()
    check_refresh(layer_lake)


def test_join_by_text_is_followed(spark: SparkSession, tmp_path: Path, path: str) -> None:
    table = """/*
keys: [id]
*/
SELECT e.id, p.events FROM pond.by_event e LEFT JOIN pond.as_text p ON p.number = CAST(e.n AS STRING)"""
    names = ("a/by_event.sql", "b/as_text.sql")
    layer_lake = LayerLake(tmp_path, spark, {**{name: TABLES[name] for name in names}, "b/joined.sql": table})
    layer_lake.land([event(1, "k1", "x", n=7), event(2, "k2", "x", n=8)])
    layer_lake.build()
    layer_lake.land([event(3, "k3", "x", n=7)])
    assert processed(layer_lake, "joined") == 2
    assert {row["id"]: row["events"] for row in _rows(layer_lake, "joined")} == {"e1": 2, "e2": 1, "e3": 2}
    check_refresh(layer_lake)


@pytest.mark.parametrize("kind", ["SEMI", "ANTI"])
def test_row_hidden_by_a_lookup_is_removed(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    table = f"""/*
keys: [k]
*/
SELECT l.k, l.n FROM pond.latest l LEFT {kind} JOIN pond.crowded c ON c.g = l.g"""
    crowded = "/*\nkeys: [g]\n*/\nSELECT g, keys FROM pond.groups WHERE keys > 1"
    layer_lake = LayerLake(tmp_path, spark, {**GROUPS, "b/crowded.sql": crowded, "c/shown.sql": table})
    layer_lake.land([event(1, "k1", "x"), event(2, "k2", "y"), event(3, "k3", "y")])
    layer_lake.build()
    layer_lake.land([event(4, "k4", "x"), event(5, "k2", "z", n=2)])
    layer_lake.build()
    assert {row["k"] for row in _rows(layer_lake, "shown")} == ({"k1", "k4"} if kind == "SEMI" else {"k2", "k3"})
    check_refresh(layer_lake)


def test_record_hidden_by_a_lookup_is_removed_without_its_history(
    spark: SparkSession, tmp_path: Path, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = """/*
keys: [k]
sequence_by: n
oldest_by: n
match: {same_amount: {from: cents, as: exact}}
*/
SELECT l.k, l.n, CAST(l.amount AS STRING) AS cents FROM pond.latest l JOIN pond.groups s ON s.g = l.g AND s.keys < 2"""
    layer_lake = LayerLake(tmp_path, spark, {**GROUPS, "c/records.sql": table})
    layer_lake.land([event(1, "k1", "x"), event(2, "k2", "y"), event(3, "k3", "z", cents=2)])
    layer_lake.build()
    assert {row["k"] for row in _rows(layer_lake, "records")} == {"k1", "k2", "k3"}
    monkeypatch.setattr(PlannedInputs, "knows_past", lambda *_: False)
    layer_lake.land([event(4, "k4", "x", cents=2)])
    layer_lake.build()
    assert {row["k"] for row in _rows(layer_lake, "records")} == {"k2", "k3"}
    check_refresh(layer_lake)


def test_frozen_lookup_is_joined_as_of_the_build(spark: SparkSession, tmp_path: Path) -> None:
    table = """/*
keys: [k]
frozen: [pond.groups]
*/
SELECT l.k, s.keys FROM pond.latest l LEFT JOIN pond.groups s ON s.g = l.g"""
    layer_lake = LayerLake(tmp_path, spark, {**GROUPS, "b/then.sql": table})
    layer_lake.land([event(1, "k1", "x")])
    layer_lake.build()
    layer_lake.land([event(2, "k2", "x")])
    layer_lake.build()
    assert {row["k"]: row["keys"] for row in _rows(layer_lake, "then")} == {"k1": 1, "k2": 2}
    file = layer_lake.folder / "pipelines/pond/b/then.sql"
    file.write_text(table.replace("frozen: [pond.groups]\n", ""))
    layer_lake.reload()
    plan = plan_table(layer_lake.catalog, layer_lake.pipeline, _table(layer_lake, "then"))
    assert (plan.action, plan.why) == ("refresh", ("pond.groups is no longer frozen",))
    layer_lake.build()
    assert {row["k"]: row["keys"] for row in _rows(layer_lake, "then")} == {"k1": 2, "k2": 2}
    file.write_text(table)
    layer_lake.reload()
    assert plan_table(layer_lake.catalog, layer_lake.pipeline, _table(layer_lake, "then")).action == "nothing", (
        "to freeze one rebuilds nothing"
    )


def test_lookup_that_all_rows_follow_rebuilds_them(spark: SparkSession, tmp_path: Path) -> None:
    table = """/*
rebuild_on: {pond.groups: all}
*/
SELECT e.id, s.keys FROM pond.events e JOIN pond.groups s ON s.newest >= e.n"""
    layer_lake = LayerLake(tmp_path, spark, {**GROUPS, "b/appended.sql": table})
    layer_lake.land([event(1, "k1", "x")])
    layer_lake.build()
    layer_lake.land([event(2, "k2", "x", n=5)])
    layer_lake.build()
    assert {row["id"]: row["keys"] for row in _rows(layer_lake, "appended")} == {"e1": 2, "e2": 2}
    plan = plan_table(layer_lake.catalog, layer_lake.pipeline, _table(layer_lake, "appended"))
    assert plan.action == "nothing"
    check_refresh(layer_lake)


@pytest.mark.parametrize("local", [True, False])
def test_net_rows_are_those_that_differ_in_the_columns(spark: SparkSession, local: bool) -> None:
    def rows(*values: tuple[int, str | None, list[str] | None, str]) -> Rows:
        frame = spark.createDataFrame(list(values), "id INT, name STRING, tags ARRAY<STRING>, unread STRING")
        arrow = pa.Table.from_pylist([row.asDict() for row in frame.collect()], schema=frame.toArrow().schema)
        return LocalRows(spark, arrow, frame.schema) if local else SparkRows(frame)

    now = rows((1, "a", ["t"], "new"), (2, "b", ["t"], "new"), (3, None, None, "new"), (4, "d", [], "x"), (4, "d", [], "y"))
    then = rows((1, "a", ["t"], "old"), (2, "b", ["u"], "old"), (3, None, None, "old"), (4, "d", [], "x"), (5, "e", None, "x"))
    net = net_rows(ChangeSet(now, then), ["id", "name", "tags"])
    counted = Counter((row["id"], row["name"], tuple(row["tags"] or ())) for row in net.frame.collect())
    assert counted == Counter([(2, "b", ("t",)), (2, "b", ("u",)), (4, "d", ()), (5, "e", ())])


@pytest.mark.parametrize("local", [True, False])
def test_texts_become_values_with_the_same_text_form(spark: SparkSession, local: bool) -> None:
    texts = ["7", "07", " 7", "-3", "3000000000", "x", "", None]
    frame = spark.createDataFrame([(text, 5) for text in texts], "text STRING, n INT")
    rows = LocalRows(spark, frame.toArrow(), frame.schema) if local else SparkRows(frame)
    columns = (Column("id", Primitive("int")), Column("code", Primitive("string")), Column("long", Primitive("long")))

    def values(column: str, of: str) -> list[object]:
        joined = join_values(rows, {column: of}, columns, nulls_match=False)
        return [row[0] for row in joined.frame.collect()]

    assert values("id::string", "text") == [7, -3]
    assert values("long::string", "text") == [7, -3, 3_000_000_000]
    assert values("code::string", "text") == [text for text in texts if text is not None]
    assert values("code", "n::string") == ["5"] * len(texts)
    assert values("id::string", "n") == [5] * len(texts)


def _table(layer_lake: LayerLake, name: str) -> LayerTable:
    return next(table for table in layer_lake.pipeline.tables if table.table == TableName("pond", name))


def _rows(layer_lake: LayerLake, name: str) -> list[dict[str, object]]:
    return list(layer_lake.catalog.load_table(f"pond.{name}").scan().to_arrow().to_pylist())


OF_KEY = """/*
keys: [k]
{settings}
*/
SELECT e.k, e.n, e.amount, o.newest
FROM pond.events e JOIN (SELECT k, max(n) AS newest FROM pond.events GROUP BY k) o ON o.k = e.k"""
LARGEST = """/*
keys: [g]
*/
SELECT l.g, count(*) AS keys, max(s.amount) AS largest
FROM pond.latest l JOIN (SELECT g, amount FROM pond.latest WHERE amount > 5) s ON s.g = l.g GROUP BY l.g"""


def test_driver_is_joined_to_its_unchanged_rows_of_a_key(spark: SparkSession, tmp_path: Path, path: str) -> None:
    tables = {
        "a/latest.sql": TABLES["a/latest.sql"],
        "b/upserted.sql": OF_KEY.format(settings="sequence_by: n"),
        "b/history.sql": OF_KEY.format(settings="sequence_by: n\nstored_as_scd_type: 2"),
        "b/largest.sql": LARGEST,
    }
    layer_lake = LayerLake(tmp_path, spark, tables)
    layer_lake.land([event(1, "k1", "x", n=5, cents=900), event(2, "k2", "y", n=1, cents=700)])
    layer_lake.build()
    layer_lake.land([event(3, "k1", "x", n=3), event(4, "k3", "x", n=1)])
    layer_lake.build()
    assert {(row["k"], row["n"], row["newest"]) for row in _rows(layer_lake, "upserted")} == {
        ("k1", 5, 5),
        ("k2", 1, 1),
        ("k3", 1, 1),
    }
    assert {(row["g"], row["keys"]) for row in _rows(layer_lake, "largest")} == {("x", 2), ("y", 1)}
    layer_lake.land([event(5, "k1", "y", n=9)])
    layer_lake.build()
    check_refresh(layer_lake)


def test_driver_that_is_joined_to_itself_rebuilds_all_rows_where_that_is_declared(spark: SparkSession, tmp_path: Path) -> None:
    table = """/*
keys: [k]
rebuild_on: {pond.latest: all}
*/
SELECT d.k, count(l.k) AS in_group FROM pond.latest d JOIN pond.latest l ON l.g = d.g GROUP BY d.k"""
    layer_lake = LayerLake(tmp_path, spark, {"a/latest.sql": TABLES["a/latest.sql"], "b/paired.sql": table})
    layer_lake.land([event(1, "k1", "x")])
    layer_lake.build()
    layer_lake.land([event(2, "k2", "x")])
    layer_lake.build()
    assert {(row["k"], row["in_group"]) for row in _rows(layer_lake, "paired")} == {("k1", 2), ("k2", 2)}
    check_refresh(layer_lake)


WHOLE_KEYS = {
    "b/counted.sql": "/*\nkeys: [g]\nsequence_by: m\n*/\nSELECT g, max(n) AS m, count(*) AS events FROM pond.events GROUP BY g",
    "b/ranked.sql": """/*
keys: [k]
sequence_by: n
stored_as_scd_type: 2
*/
SELECT k, n, g, row_number() OVER (PARTITION BY k ORDER BY n, id) AS place FROM pond.events""",
    "b/several.sql": """/*
keys: [g]
*/
SELECT g, keys FROM (SELECT g, count(DISTINCT k) AS keys FROM pond.by_event GROUP BY g) WHERE keys > 1""",
}


def test_rows_that_are_made_of_several_rows_of_a_key_are_followed(spark: SparkSession, tmp_path: Path, path: str) -> None:
    layer_lake = LayerLake(tmp_path, spark, {"a/by_event.sql": TABLES["a/by_event.sql"], **WHOLE_KEYS})
    layer_lake.land([event(1, "k1", "x", n=4), event(2, "k2", "y", n=1)])
    layer_lake.build()
    layer_lake.land([event(3, "k2", "x", n=2), event(4, "k1", "z", n=3)])
    layer_lake.build()
    assert {(row["g"], row["m"], row["events"]) for row in _rows(layer_lake, "counted")} == {
        ("x", 4, 2),
        ("y", 1, 1),
        ("z", 3, 1),
    }
    assert {(row["k"], row["n"], row["place"]) for row in _rows(layer_lake, "ranked")} == {
        *(("k1", 4, 2), ("k1", 3, 1)),
        *(("k2", 1, 1), ("k2", 2, 2)),
    }
    assert {(row["g"], row["keys"]) for row in _rows(layer_lake, "several")} == {("x", 2)}
    check_refresh(layer_lake)


def test_late_table_reads_old_lookup_snapshots(
    spark: SparkSession, tmp_path: Path, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "RECENT", 1)
    monkeypatch.setattr(history, "_AT_ONCE", 1)
    monkeypatch.setattr(build_commit, "RECENT", 1)
    table = """/*
keys: [k]
*/
SELECT l.k, l.n FROM pond.latest l JOIN pond.groups s ON s.g = l.g WHERE s.newest > 0"""
    layer_lake = LayerLake(tmp_path, spark, {**GROUPS, "b/shown.sql": table})
    layer_lake.land([event(number, f"k{number}", f"g{number}") for number in range(9)])
    layer_lake.build()
    for number in range(4):
        layer_lake.land([event(10 + number, "k1", "g1", n=2 + number)])
        layer_lake.build("pond.groups")
    assert processed(layer_lake, "shown") == 1, "not all rows"
    assert len(layer_lake.catalog.load_table("pond.groups").snapshots()) <= 4
    for number in range(2):  # the reader has moved on, so its first snapshot goes
        layer_lake.land([event(20 + number, "k2", "g2", n=2 + number)])
        layer_lake.build()
    assert len(layer_lake.catalog.load_table("pond.groups").snapshots()) <= 4
    check_refresh(layer_lake)


def test_read_snapshots_are_known_when_a_lake_opens(spark: SparkSession, tmp_path: Path) -> None:
    layer_lake = LayerLake(tmp_path, spark, GROUPS)
    layer_lake.land([event(1, "k1", "x")])
    layer_lake.build()
    current = layer_lake.catalog.load_table("pond.latest").current_snapshot()
    layer_lake.reload()
    assert current is not None
    assert layer_lake.lake.read_snapshots.of(TableName("pond", "latest")) == {current.snapshot_id}
    assert layer_lake.lake.read_snapshots.of(TableName("pond", "groups")) == frozenset()


def test_read_snapshots_of_a_build_are_kept_while_it_runs() -> None:
    known, reader, lookup = ReadSnapshots(), TableName("pond", "shown"), TableName("pond", "groups")
    known.note(reader, {"pond.groups": InputState(1)}, {"pond.groups": InputState(2)})
    assert known.of(lookup) == {1, 2}
    known.note(reader, {"pond.groups": InputState(2), "pond.latest": InputState()})
    assert known.of(lookup) == {2}
    assert known.of(TableName("pond", "latest")) == frozenset()
