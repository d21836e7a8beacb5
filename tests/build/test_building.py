"""Builds: expectations, failures, plans, and errors that are raised before anything is written."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from py4j.protocol import Py4JNetworkError

from headrace.build.build import Built
from headrace.build.lake import Lake
from headrace.build.plan import TablePlan
from headrace.errors import QualityError, ServiceError, SpecError
from headrace.iceberg.metadata.quarantine import QUARANTINE
from headrace.operations.quality import report_quality
from headrace.quality.expectations import measure
from headrace.quality.results import read_results
from headrace.sessions import building
from headrace.sessions.building import build, plan
from headrace.spec.model.layers import Expectation
from tests.build.layer_lake import CHECKED, READER, Event, LayerLake
from tests.build.paths import scanned_refreshes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

OTHER = "SELECT id FROM pond.events"


def events(*cents: int, start: int = 0) -> list[Event]:
    return [
        Event(f"e{number}", "k", "x" if cent % 2 else None, number, cent, "u", number)
        for number, cent in enumerate(cents, start=start)
    ]


def test_failed_rows_are_counted_dropped_or_quarantined(spark: SparkSession, tmp_path: Path) -> None:
    layer_lake = LayerLake(
        tmp_path,
        spark,
        {f"a/{word}.sql": CHECKED.format(on_failure=word) for word in ("warn", "drop", "quarantine")},
    )
    for part in (events(3, -5, 8), events(-7, 9, start=3)):
        layer_lake.land(part)
        layer_lake.build()
        layer_lake.build()
    assert {name: sum(rows.values()) for name, rows in layer_lake.all_rows().items()} == {
        "warn": 5,
        "drop": 3,
        "quarantine": 3,
    }
    for again in (False, True):
        if again:
            layer_lake.build("quarantine", full_refresh=True)
        refused = layer_lake.catalog.load_table(str(QUARANTINE)).scan().to_arrow().to_pylist()
        assert sorted((row["stream"], row["reason"], json.loads(row["original_bytes"])["id"]) for row in refused) == [
            ("pond.quarantine", "amount is positive", "e1"),
            ("pond.quarantine", "amount is positive", "e3"),
        ]
    reports = {(report.table, report.sentence): report for report in report_quality(layer_lake.settings, layer_lake.pipeline)}
    counted, set_aside = reports["pond.warn", "amount is positive"], reports["pond.quarantine", "amount is positive"]
    assert (counted.rows, counted.failing, counted.quarantined, counted.last_checked, counted.last_failed) == (5, 2, 0, 2, 1)
    assert (set_aside.rows, set_aside.failing, set_aside.quarantined, set_aside.last_checked) == (3, 0, 2, 5)
    assert (reports["pond.warn", "the group is known"].last_checked, reports["pond.drop", "the group is known"].failing) == (
        2,
        1,
    )
    assert json.loads(reports["pond.drop", "amount is positive"].sample or "")["id"] == "e3"
    assert [row["build_id"] for row in read_results(layer_lake.catalog, "pond") if row["table_name"] == "pond.drop"] == [
        1,
        1,
        2,
        2,
    ]


def test_failed_build_publishes_nothing_and_stops_only_downstream(spark: SparkSession, tmp_path: Path) -> None:
    tables = {"a/checked.sql": CHECKED.format(on_failure="fail"), "b/reader.sql": READER, "b/other.sql": OTHER}
    layer_lake = LayerLake(tmp_path, spark, tables)
    layer_lake.land(events(3, 5))
    layer_lake.build()
    before = layer_lake.all_rows()
    layer_lake.land(events(-1, 7, start=2))
    outcomes = {outcome.table.table.name: outcome for outcome in build(layer_lake.lake)}
    error = outcomes["checked"].error
    assert isinstance(error, QualityError)
    assert str(error).startswith(
        'pipelines/pond/a/checked.sql:5: 1 row of 2 failed the expectation "amount is positive": amount > 0\n'
        "Nothing was published."
    )
    assert str(outcomes["reader"].because_of) == "pond.checked"
    assert outcomes["other"].built
    assert (layer_lake.rows("checked"), layer_lake.rows("reader")) == (before["checked"], before["reader"])
    results = [row for row in read_results(layer_lake.catalog, "pond") if not row["published"]]
    assert [(row["expectation"], row["rows_failed"]) for row in results] == [
        ("amount is positive", 1),
        ("the group is known", 0),
    ]
    (tmp_path / "pipelines/pond/a/checked.sql").write_text(CHECKED.format(on_failure="drop"), encoding="utf-8")
    layer_lake.reload()
    layer_lake.build()
    assert sum(layer_lake.rows("checked").values()) == 3


def test_plan_has_action_and_reasons(spark: SparkSession, tmp_path: Path) -> None:
    layer_lake = LayerLake(tmp_path, spark, {"a/checked.sql": CHECKED.format(on_failure="warn"), "b/reader.sql": READER})

    def planned() -> list[tuple[str, str]]:
        plans = plan(layer_lake.settings, layer_lake.pipeline, table=None, full_refresh=False)
        return [(planned.action, planned.why[0]) for planned in plans]

    assert planned() == [("refresh", "it was never built")] * 2
    layer_lake.land(events(1))
    layer_lake.build()
    assert planned() == [("nothing", "its inputs have not moved")] * 2
    layer_lake.land(events(5, start=1))
    assert planned() == [
        ("increment", "pond.events has moved by 1 commit"),
        ("increment", "pond.checked is built before it"),
    ]
    layer_lake.build()
    path = tmp_path / "pipelines/pond/a/checked.sql"
    path.write_text(CHECKED.format(on_failure="warn").replace("SELECT id", "-- why\nSELECT id"), encoding="utf-8")
    layer_lake.reload()
    assert planned()[0][0] == "nothing", "a comment changes no rows"
    path.write_text(CHECKED.format(on_failure="warn") + " WHERE n > 0", encoding="utf-8")
    layer_lake.reload()
    assert planned() == [("refresh", "its definition has changed: the query"), ("refresh", "pond.checked is built before it")]
    layer_lake.build("checked")
    assert planned()[1] == ("refresh", "pond.checked was refreshed or rolled back")
    layer_lake.build()
    raw = layer_lake.catalog.load_table("pond.events")
    first = min(raw.snapshots(), key=lambda snapshot: snapshot.timestamp_ms)
    raw.manage_snapshots().rollback_to_snapshot(first.snapshot_id).commit()
    assert planned()[0] == ("refresh", "pond.events was refreshed or rolled back")


BAD = {
    "a column that is not there": (
        "SELECT id,\n  n + nope AS m FROM pond.events",
        "a/bad.sql:2:10",
        'not found: column "nope" in the inputs',
    ),
    "what only Spark can tell": (
        "SELECT id, date_add(amount, 'x') AS m FROM pond.events",
        "a/bad.sql:1:12",
        "Spark refuses the query",
    ),
    "a syntax error": ("SELECT id FROM pond.events WHERE (n", "a/bad.sql:1:35", "not valid SQL"),
    "an expectation that does not parse": (
        "/*\nexpect:\n  it holds: n >\n*/\nSELECT n FROM pond.events",
        "a/bad.sql:3",
        "expect: it holds is not valid SQL",
    ),
    "an expectation of a column that is not there": (
        "/*\nexpect:\n  it holds: exists(array(n), x -> x > 0) AND nope > 0\n*/\nSELECT n FROM pond.events",
        "a/bad.sql:3",
        'expect "it holds": "nope" is not a column of this table',
    ),
    "an expectation that is no condition": (
        "/*\nexpect:\n  it holds: n + 1\n*/\nSELECT n FROM pond.events",
        "a/bad.sql:3",
        'expect "it holds" is of type int, not boolean',
    ),
    "an expectation of another column": (
        "/*\nexpect:\n  it holds: amount > 0\n*/\nSELECT n FROM pond.events",
        "a/bad.sql:3",
        'expect "it holds": "amount" is not a column of this table',
    ),
    "a column without a type": ("SELECT id, NULL AS nothing FROM pond.events", "a/bad.sql:1", "which tables don't support"),
}


@pytest.mark.parametrize(("text", "where", "what"), BAD.values(), ids=BAD)
def test_error_is_raised_before_anything_is_written(
    text: str, where: str, what: str, spark: SparkSession, tmp_path: Path
) -> None:
    with pytest.raises(SpecError) as raised:
        LayerLake(tmp_path, spark, {"a/bad.sql": text})
    assert raised.value.where == f"pipelines/pond/{where}"
    assert what in raised.value.what
    assert "headrace check pond" in raised.value.next_step


def test_incompatible_type_is_rejected_before_anything_is_written(spark: SparkSession, tmp_path: Path) -> None:
    layer_lake = LayerLake(tmp_path, spark, {"a/typed.sql": "SELECT id, n AS value FROM pond.events"})
    layer_lake.land(events(1, 2))
    layer_lake.build()
    path = tmp_path / "pipelines/pond/a/typed.sql"
    path.write_text("SELECT id, CAST(n AS BIGINT) AS value, g FROM pond.events", encoding="utf-8")
    layer_lake.reload()
    layer_lake.build()
    before = layer_lake.all_rows()
    path.write_text("SELECT id, CAST(n AS STRING) AS value, g FROM pond.events", encoding="utf-8")
    with pytest.raises(SpecError) as raised:
        layer_lake.reload()
    assert raised.value.where == "pipelines/pond/a/typed.sql:1"
    assert "pond.typed can't become what the query says" in raised.value.what
    assert layer_lake.all_rows() == before


def test_decimal_of_a_larger_scale_is_rebuilt_in_its_table(spark: SparkSession, tmp_path: Path) -> None:
    scaled = """/*\nkeys: [id]\nsequence_by: n\napply_as_deletes: op = 'd'\nexcept_column_list: [op]\n*/
SELECT id, CAST(amount / 8 AS {0}) AS part, array(struct(CAST(amount / 8 AS {0}) AS part, g)) AS parts, n, op
FROM pond.events"""
    totals = "/*\nkeys: [id]\n*/\nSELECT id, sum(part) AS total FROM pond.scaled GROUP BY id"
    layer_lake = LayerLake(tmp_path, spark, {"a/scaled.sql": scaled.format("DECIMAL(12, 2)"), "b/totals.sql": totals})
    layer_lake.land(
        [Event("kept", "k", "g", 1, 101, "u", 0), *(Event("gone", "k", "g", n, 100, op, n) for n, op in ((2, "u"), (3, "d")))]
    )
    layer_lake.build()
    old = layer_lake.catalog.load_table("pond.scaled")
    snapshot = old.current_snapshot()
    assert snapshot is not None
    path = tmp_path / "pipelines/pond/a/scaled.sql"
    path.write_text(scaled.format("DECIMAL(13, 3)"), encoding="utf-8")
    layer_lake.reload()
    layer_lake.build()
    layer_lake.land(
        [
            Event("kept", "k", "g", 4, 103, "u", 4),
            Event("gone", "k", "g", 2, 100, "u", 5),
            Event("new", "k", "g", 5, 107, "u", 6),
        ]
    )
    layer_lake.build()

    new = layer_lake.catalog.load_table("pond.scaled")
    assert [field.name for field in new.schema().fields] == [field.name for field in old.schema().fields]
    parts = {"kept": Decimal("0.129"), "new": Decimal("0.134")}
    rows = new.scan().to_arrow().to_pylist()
    assert {row["id"]: (row["part"], row["parts"]) for row in rows} == {
        name: (part, [{"part": part, "g": "g"}]) for name, part in parts.items()
    }
    totals_now = layer_lake.catalog.load_table("pond.totals").scan().to_arrow().to_pylist()
    assert {row["id"]: row["total"] for row in totals_now} == parts
    then = new.scan(snapshot_id=snapshot.snapshot_id).to_arrow().to_pylist()
    assert [row["part"] for row in then] == [Decimal("0.13")], "older snapshots keep the old column"


@pytest.mark.parametrize("refreshes", [nullcontext, scanned_refreshes])
def test_duplicate_keys_are_rejected(
    spark: SparkSession, tmp_path: Path, refreshes: Callable[[], AbstractContextManager[None]]
) -> None:
    tables = {
        "a/wrong.sql": "/*\nkeys: [k]\n*/\nSELECT k, n FROM pond.events",
        "a/null.sql": "/*\nkeys: [k]\npartition_by: [days(at)]\n*/\nSELECT nullif(k, 'k') AS k, at FROM pond.events",
        "a/right.sql": "/*\nkeys: [k, n]\npartition_by: [days(at)]\n*/\nSELECT k, n, at FROM pond.events",
        "a/grouped.sql": "/*\nkeys: [k]\n*/\nSELECT k, count(*) AS n FROM pond.events GROUP BY k",
    }
    layer_lake = LayerLake(tmp_path, spark, tables)
    layer_lake.land(events(1, 3))
    with refreshes():
        errors = {outcome.table.table.name: str(outcome.error) for outcome in build(layer_lake.lake) if outcome.error}
    assert sorted(errors) == ["null", "wrong"]
    assert 'a/wrong.sql:2: several rows have the key {"k":"k"}' in errors["wrong"]
    assert 'a/null.sql:2: several rows have the key {"k":null}' in errors["null"]
    assert layer_lake.catalog.load_table("pond.wrong").current_snapshot() is None


def test_build_reports_that_spark_ended(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def die(lake: Lake, planned: TablePlan) -> Built:
        raise Py4JNetworkError("Answer from Java side is empty")

    monkeypatch.setattr(building, "build_table", die)
    layer_lake = LayerLake(tmp_path, spark, {"a/other.sql": OTHER})
    layer_lake.land(events(1))
    (outcome,) = build(layer_lake.lake)
    assert isinstance(outcome.error, ServiceError)
    assert outcome.error.what == "Spark ended unexpectedly"


def test_refused_rows_keep_microseconds(spark: SparkSession) -> None:
    times = "TIMESTAMP '2026-01-01 10:00:00.123456' AS at, TIMESTAMP_NTZ '2026-01-01 10:00:00.654321' AS plain"
    rows = spark.sql(f"SELECT {times}, named_struct('at', TIMESTAMP '2026-01-01 10:00:00.000001') AS inner, 0 AS n")
    measured = measure(rows, [Expectation("n is positive", "n > 0", "quarantine", 1)])
    (refused,) = measured.refused.collect()
    assert json.loads(refused["row"]) == {
        "at": "2026-01-01T10:00:00.123456Z",
        "plain": "2026-01-01T10:00:00.654321",
        "inner": {"at": "2026-01-01T10:00:00.000001Z"},
        "n": 0,
    }
    (values,) = measured.rows.agg(*measured.metrics()).collect()
    (checked,) = measured.read_metrics(values.asDict())
    assert checked.sample is not None
    assert json.loads(checked.sample) == json.loads(refused["row"])
