"""Queries of tables as of a moment: before and after rows were changed and deleted, in every engine."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.table.update import RemoveSnapshotsUpdate

from headrace.errors import BadQueryError, QueryError
from headrace.iceberg.catalog.tables import ensure_table, open_catalog, table_location
from headrace.iceberg.commits.row_delta import RowDelta
from headrace.iceberg.files.staged_rows import stage_rows
from headrace.iceberg.ledgers.build import KEY, BuildLedger
from headrace.iceberg.snapshots.history import history_of
from headrace.iceberg.snapshots.moments import Instant, SnapshotId, parse_moment, show_time
from headrace.serving.sql.engines.names import Engine
from headrace.serving.sql.engines.spark import ask as ask_spark
from headrace.serving.sql.engines.trino import rewrite
from headrace.serving.sql.query import run_query
from headrace.settings import Settings, load_settings
from headrace.spec import Column, Primitive, TableName
from headrace.spec.model.layers import BUILD_ID, STATE
from tests.build.layer_lake import Event, LayerLake
from tests.iceberg.delta_table import NAME, as_arrow, commit, create_table, delete_positions, tasks_of
from tests.support.engine_rows import IN_PROCESS, ask_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TEXT, LONG = Primitive("string"), Primitive("long")
STEPS = {
    "inserted": {1: "a", 2: "b", 3: "c"},
    "updated": {1: "a", 2: "B", 3: "c"},
    "deleted": {1: "a", 2: "B"},
    "widened": {1: "a", 2: "B", 4: "d"},
}
"""The notes by id after each step."""
NOTES = "SELECT id, note FROM built.orders ORDER BY id"


@dataclass
class OrdersLake:
    """A lake whose table built.orders was changed in the steps above; `snapshots` has the id and the moment of each."""

    settings: Settings
    catalog: Catalog
    snapshots: dict[str, int] = field(default_factory=dict)
    moments: dict[str, Instant] = field(default_factory=dict)

    def record(self, step: str, name: str = str(NAME)) -> None:
        snapshot = self.catalog.load_table(name).current_snapshot()
        assert snapshot is not None
        self.snapshots[step], self.moments[step] = snapshot.snapshot_id, Instant(snapshot.timestamp_ms)
        time.sleep(0.002)  # the next snapshot has a later time


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> OrdersLake:
    """The lake, and the tables gold.stats, whose state was added later, and raw.late, which was created last."""
    settings = load_settings(flags={}, environ={}, folder=tmp_path_factory.mktemp("travel"))
    lake = OrdersLake(settings, open_catalog(settings))
    catalog, location = lake.catalog, table_location(settings, NAME)
    fill(lake, TableName("gold", "stats"), {"g": "x", STATE: "open"})
    table = create_table(catalog, location, by_day=False)
    commit(catalog, RowDelta(added=stage_rows(table, [as_arrow([(1, None, "a"), (2, None, "b"), (3, None, "c")])])))
    lake.record("inserted")
    table = catalog.load_table(str(NAME))
    (task,) = tasks_of(table)
    commit(catalog, delete_positions(table, task, [1], added=stage_rows(table, [as_arrow([(2, None, "B")])])))
    lake.record("updated")
    table = catalog.load_table(str(NAME))
    task = next(task for task in tasks_of(table) if task.file.record_count == 3)
    commit(catalog, delete_positions(table, task, [1, 2]))
    lake.record("deleted")
    ensure_table(catalog, NAME, columns=(Column("late", TEXT),), location=location)
    table = catalog.load_table(str(NAME))
    rows = as_arrow([(4, None, "d")]).append_column("late", pa.array(["x"]))
    commit(catalog, RowDelta(added=stage_rows(table, [rows]), snapshot_id=table.metadata.current_snapshot_id))
    lake.record("widened")
    entry = BuildLedger(build_id=1, added_columns=(BUILD_ID, STATE))
    fill(lake, TableName("gold", "stats"), {"g": "y", STATE: "{}", BUILD_ID: 1}, entry=entry)
    fill(lake, TableName("raw", "late"), {"g": "x"})
    lake.record("late", "raw.late")
    return lake


def fill(lake: OrdersLake, name: TableName, row: dict[str, Any], *, entry: BuildLedger | None = None) -> None:
    columns = tuple(Column(column, TEXT if isinstance(value, str) else LONG) for column, value in row.items())
    table = ensure_table(lake.catalog, name, columns=columns, location=table_location(lake.settings, name))
    properties = {KEY: entry.to_json()} if entry else {}
    with table.transaction() as transaction:
        transaction.append(pa.Table.from_pylist([row], schema=table.schema().as_arrow()), snapshot_properties=properties)
        transaction.set_properties(properties)


def notes(result: pa.Table) -> dict[int, str]:
    return dict(zip(result["id"].to_pylist(), result["note"].to_pylist(), strict=True))


@pytest.mark.parametrize("engine", IN_PROCESS)
@pytest.mark.parametrize("step", STEPS)
def test_engine_reads_a_table_as_of_a_moment(lake: OrdersLake, engine: Engine, step: str) -> None:
    ask, moment, snapshot = IN_PROCESS[engine], lake.moments[step], SnapshotId(lake.snapshots[step])
    assert notes(ask(lake.catalog, NOTES, at=moment)) == STEPS[step]
    assert notes(ask(lake.catalog, NOTES, at=snapshot)) == STEPS[step]
    columns = ["id", "at", "note"] + ["late"] * (step == "widened")
    assert ask(lake.catalog, "SELECT * FROM built.orders AS o", at=moment).column_names == columns
    assert notes(ask(lake.catalog, NOTES)) == STEPS["widened"]


@pytest.mark.parametrize("engine", IN_PROCESS)
def test_engine_reads_every_table_as_of_the_same_moment(lake: OrdersLake, engine: Engine) -> None:
    joined = "SELECT o.id, s.g FROM built.orders AS o CROSS JOIN gold.stats AS s ORDER BY 1, 2"
    counted = "SELECT count(*) AS n FROM built.orders WHERE built.orders.note <> 'a'"
    ask = IN_PROCESS[engine]
    before = ask(lake.catalog, joined, at=lake.moments["updated"])
    assert before.to_pylist() == [{"id": number, "g": "x"} for number in (1, 2, 3)]
    now = ask(lake.catalog, joined, at=lake.moments["late"])
    assert now.to_pylist() == [{"id": number, "g": g} for number in (1, 2, 4) for g in "xy"]
    assert ask(lake.catalog, counted, at=lake.moments["deleted"]).to_pylist() == [{"n": 1}]


@pytest.mark.parametrize("engine", IN_PROCESS)
def test_hidden_columns_are_those_of_the_moment(lake: OrdersLake, engine: Engine) -> None:
    ask = IN_PROCESS[engine]
    then = ask(lake.catalog, "SELECT * FROM gold.stats", at=lake.moments["inserted"])
    assert then.to_pylist() == [{"g": "x", STATE: "open"}]
    now = ask(lake.catalog, "SELECT * FROM gold.stats ORDER BY g", at=lake.moments["late"])
    assert now.column_names == ["g", BUILD_ID]


@pytest.mark.parametrize("engine", [Engine.duckdb, Engine.pyiceberg, Engine.clickhouse])
def test_table_is_described_as_of_a_moment(lake: OrdersLake, engine: Engine) -> None:
    described = IN_PROCESS[engine](lake.catalog, "DESCRIBE built.orders", at=lake.moments["inserted"])
    assert described.column(0).to_pylist() == ["id", "at", "note"]


@pytest.mark.spark
def test_spark_reads_a_table_as_of_a_moment(lake: OrdersLake, spark: SparkSession) -> None:
    def ask(sql: str, at: Instant | SnapshotId) -> pa.Table:
        return ask_spark(ask_of(lake.catalog, sql, Engine.spark, at=at), settings=lake.settings, spark=spark)

    for step, rows in STEPS.items():
        assert notes(ask(NOTES, lake.moments[step])) == rows
        assert notes(ask(NOTES, SnapshotId(lake.snapshots[step]))) == rows
    assert ask("SELECT * FROM built.orders", lake.moments["deleted"]).column_names == ["id", "at", "note"]
    assert ask("SELECT built.orders.id FROM built.orders", lake.moments["deleted"]).num_rows == 2
    assert ask("SELECT * FROM gold.stats", lake.moments["inserted"]).to_pylist() == [{"g": "x", STATE: "open"}]
    with pytest.raises(BadQueryError, match=r"--at needs a SELECT of built\.orders(.|\n)*--engine duckdb"):
        ask("DESCRIBE built.orders", lake.moments["deleted"])


@pytest.mark.spark
def test_engines_read_builds_as_of_a_moment(spark: SparkSession, tmp_path: Path) -> None:
    layer_lake = LayerLake(
        tmp_path,
        spark,
        {
            "a/present.sql": """/*
keys: [k]
sequence_by: n
apply_as_deletes: op = 'd'
except_column_list: [op]
*/
SELECT k, n, op FROM pond.events""",
            "b/stats.sql": "/*\nkeys: [n]\n*/\nSELECT n, count(*) AS keys, avg(n) AS average FROM pond.present GROUP BY n",
        },
    )
    wanted: dict[Instant, list[list[Any]]] = {}
    changes = [
        [Event(f"e{n}", k, "g", n, 100, "u", n) for n, k in enumerate("abc")],
        [Event("e3", "b", "g", 3, 100, "u", 3)],
        [Event("e4", "a", "g", 4, 100, "d", 4)],
    ]
    for events, rows in zip(
        changes, ([["a", 0], ["b", 1], ["c", 2]], [["a", 0], ["b", 3], ["c", 2]], [["b", 3], ["c", 2]]), strict=True
    ):
        layer_lake.land(events)
        layer_lake.build()
        snapshot = layer_lake.catalog.load_table("pond.stats").current_snapshot()
        assert snapshot is not None
        wanted[Instant(snapshot.timestamp_ms)] = rows
    sql = "SELECT p.k, s.n FROM pond.present AS p JOIN pond.stats AS s ON s.n = p.n ORDER BY p.k"
    for at, rows in wanted.items():
        answers = {engine: ask(layer_lake.catalog, sql, at=at) for engine, ask in IN_PROCESS.items()}
        question = ask_of(layer_lake.catalog, sql, Engine.spark, at=at)
        answers[Engine.spark] = ask_spark(question, settings=layer_lake.settings, spark=spark)
        assert {
            engine: [list(row.values()) for row in answer.to_pylist()] for engine, answer in answers.items()
        } == dict.fromkeys(answers, rows)


def test_trino_is_asked_for_the_snapshot(lake: OrdersLake) -> None:
    at, snapshot = lake.moments["deleted"], lake.snapshots["deleted"]

    def asked(sql: str) -> str:
        return rewrite(ask_of(lake.catalog, sql, Engine.trino, at=at))

    listed = f'(SELECT "id", "at", "note" FROM "built"."orders" FOR VERSION AS OF {snapshot})'
    assert asked("SELECT built.orders.id FROM built.orders") == f'SELECT "orders".id FROM {listed} AS "orders"'
    for sql in ("DESCRIBE built.orders", "TABLE built.orders", "SELECT * FROM built.orders FOR VERSION AS OF 1"):
        with pytest.raises(BadQueryError, match=r"--at needs a SELECT of built\.orders"):
            asked(sql)


def test_table_does_not_exist_before_its_first_snapshot(lake: OrdersLake) -> None:
    first = lake.moments["late"]
    with pytest.raises(QueryError) as raised:
        run_query(lake.catalog, "SELECT * FROM raw.late, built.orders", at=lake.moments["inserted"])
    then = lake.moments["inserted"]
    assert str(raised.value) == (
        f"--at: raw.late did not exist at {then}: its first snapshot is of {first}\nRead it as of {first} or later."
    )


def test_snapshot_id_belongs_to_one_table(lake: OrdersLake) -> None:
    snapshot = SnapshotId(lake.snapshots["deleted"])
    with pytest.raises(
        BadQueryError, match=r"names these 2 tables: built\.orders, gold\.stats\nName one table, or give a time"
    ):
        run_query(lake.catalog, "SELECT * FROM built.orders, gold.stats", at=snapshot)
    with pytest.raises(BadQueryError, match="names no table"):
        run_query(lake.catalog, "SELECT 1", at=snapshot)
    with pytest.raises(QueryError, match=rf"gold\.stats has no snapshot {snapshot.value}\nIts oldest snapshot is \d+, of "):
        run_query(lake.catalog, "SELECT * FROM gold.stats", at=snapshot)


def test_table_without_snapshots_has_no_past(tmp_path: Path) -> None:
    settings = load_settings(flags={}, environ={}, folder=tmp_path)
    catalog = open_catalog(settings)
    create_table(catalog, table_location(settings, NAME), by_day=False)
    with pytest.raises(QueryError, match=r"built\.orders has no snapshot yet\nQuery it without --at"):
        run_query(catalog, NOTES, at=Instant(0))


@pytest.fixture
def steps(tmp_path: Path) -> OrdersLake:
    """A lake whose table built.orders has one row more with each of five snapshots."""
    settings = load_settings(flags={}, environ={}, folder=tmp_path)
    lake = OrdersLake(settings, open_catalog(settings))
    create_table(lake.catalog, table_location(settings, NAME), by_day=False)
    for number in range(1, 6):
        append(lake, number)
    return lake


def append(lake: OrdersLake, number: int) -> None:
    table = lake.catalog.load_table(str(NAME))
    rows = as_arrow([(number, None, "a")])
    commit(lake.catalog, RowDelta(added=stage_rows(table, [rows]), snapshot_id=table.metadata.current_snapshot_id))
    lake.record(str(number))


def ids(lake: OrdersLake, at: Instant | SnapshotId) -> list[int]:
    result: list[int] = run_query(lake.catalog, NOTES, at=at)["id"].to_pylist()
    return result


def expire(lake: OrdersLake, *steps: str) -> None:
    table = lake.catalog.load_table(str(NAME))
    lake.catalog.commit_table(table, (), (RemoveSnapshotsUpdate(snapshot_ids=[lake.snapshots[step] for step in steps]),))  # type: ignore[call-arg]


def test_rolled_back_snapshot_was_never_current(steps: OrdersLake) -> None:
    table = steps.catalog.load_table(str(NAME))
    table.manage_snapshots().rollback_to_snapshot(steps.snapshots["2"]).commit()
    append(steps, 6)
    assert ids(steps, steps.moments["4"]) == [1, 2]
    assert ids(steps, steps.moments["6"]) == [1, 2, 6]
    assert ids(steps, SnapshotId(steps.snapshots["4"])) == [1, 2, 3, 4], "its id still reads it"
    expire(steps, "2")
    assert ids(steps, steps.moments["4"]) == [1]
    assert ids(steps, steps.moments["6"]) == [1, 2, 6]


def test_history_continues_past_thinned_snapshots(steps: OrdersLake) -> None:
    expire(steps, "2", "3")
    assert [ids(steps, steps.moments[step]) for step in "12345"] == [[1], [1], [1], [1, 2, 3, 4], [1, 2, 3, 4, 5]]


def test_expired_snapshots_are_named_as_such(steps: OrdersLake) -> None:
    expire(steps, "1", "2")
    oldest = steps.moments["3"]
    with pytest.raises(QueryError) as raised:
        ids(steps, steps.moments["2"])
    then = steps.moments["2"]
    assert str(raised.value) == (
        f"--at: built.orders can't be read as of {then}: its snapshots before {oldest} are expired\n"
        f"Read it as of {oldest} or later."
    )
    with pytest.raises(QueryError, match=r"has no snapshot \d+, or it is expired\nIts oldest snapshot is "):
        ids(steps, SnapshotId(steps.snapshots["1"]))
    assert [snapshot.snapshot_id for snapshot in history_of(steps.catalog.load_table(str(NAME)))] == [
        steps.snapshots[step] for step in "543"
    ]


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("1970-01-02", Instant(86_400_000)),
        ("1970-01-01T00:00:01.5", Instant(1_500)),
        ("1970-01-01 00:00:01.123999", Instant(1_123)),
        ("1970-01-01T00:00:02Z", Instant(2_000)),
        ("1970-01-01T01:00:02+01:00", Instant(2_000)),
        (" 7003459823745982 ", SnapshotId(7003459823745982)),
        (7, SnapshotId(7)),
        (datetime(1970, 1, 1, 0, 0, 3), Instant(3_000)),
        (datetime(1970, 1, 1, 2, tzinfo=timezone(timedelta(hours=2))), Instant(0)),
    ],
)
def test_moment_is_a_time_or_a_snapshot_id(text: str | datetime | int, moment: Instant | SnapshotId) -> None:
    assert parse_moment(text) == moment


def test_moment_reads_what_it_shows() -> None:
    assert show_time(1_500) == "1970-01-01T00:00:01.500Z"
    assert parse_moment(show_time(1_700_000_000_001)) == Instant(1_700_000_000_001)


@pytest.mark.parametrize("text", ["yesterday", "", "2026-13-01", "-5", "²"])
def test_unreadable_moment_shows_examples(text: str) -> None:
    with pytest.raises(BadQueryError) as raised:
        parse_moment(text)
    assert str(raised.value).startswith(f'--at: "{text}" is neither a time nor a snapshot id\nWrite a time such as ')
