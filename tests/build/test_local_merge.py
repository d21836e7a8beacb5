"""Merging rows in this process follows the same rules as Spark."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.build.arrow import to_spark
from headrace.build.local_merge import Decided, MergeRule, decide_rows
from headrace.build.merge import compare
from headrace.build.merge_on_read import read_verdicts
from headrace.build.removed import DELETED
from headrace.build.rows import SparkRows
from headrace.build.versions import newest_of_keys, one_of_keys
from headrace.iceberg.rows.row_store import FILE, POSITION
from headrace.quality.expectations import measure
from headrace.spark.arrow import to_arrow
from headrace.spec.model.layers import Expectation

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COLUMNS = ("k", "n", "amount", "score", "tags", "at")
SCHEMA = pa.schema(
    [
        ("k", pa.string()),
        ("n", pa.int64()),
        ("amount", pa.decimal128(12, 2)),
        ("score", pa.float64()),
        ("tags", pa.list_(pa.string())),
        ("at", pa.timestamp("us", "UTC")),
    ]
)
MOMENTS = [datetime(2026, 1, day, tzinfo=timezone.utc) for day in (1, 2)]
ROWS = st.fixed_dictionaries(
    {
        "k": st.sampled_from([None, "a", "b", "c", "d"]),
        "n": st.sampled_from([None, 1, 2, 3]),
        "amount": st.sampled_from([None, Decimal("1.00"), Decimal("1.10")]),
        "score": st.sampled_from([None, 0.0, -0.0, float("nan"), 1.5]),
        "tags": st.sampled_from([None, [], ["x"], [None]]),
        "at": st.sampled_from([None, *MOMENTS]),
    }
)


@dataclass(frozen=True)
class Case:
    rows: pa.Table
    old: pa.Table


def key_of(row: Any) -> str:
    return str(row["k"])


@st.composite
def cases(draw: st.DrawFn, *, unique: bool) -> Case:
    rows = draw(st.lists(ROWS, max_size=6, unique_by=key_of if unique else None))
    old = draw(st.lists(ROWS, max_size=4, unique_by=key_of))
    deleted = draw(st.lists(st.booleans(), min_size=len(rows), max_size=len(rows)))
    table = pa.Table.from_pylist(rows, schema=SCHEMA).append_column(DELETED, pa.array(deleted, pa.bool_()))
    places = pa.table({FILE: pa.array(["f"] * len(old), pa.string()), POSITION: pa.array(range(len(old)), pa.int64())})
    was = pa.Table.from_pylist(old, schema=SCHEMA)
    for name in places.column_names:
        was = was.append_column(name, places[name])
    return Case(table, was)


def decide_on_spark(spark: SparkSession, case: Case, *, meets_old: bool, sequence_by: tuple[str, ...]) -> Decided:
    struct = "k string, n long, amount decimal(12,2), score double, tags array<string>, at timestamp"
    rows = to_spark(spark, case.rows, _schema(spark, f"{struct}, {DELETED} boolean"))
    old = to_spark(spark, case.old, _schema(spark, f"{struct}, {FILE} string, {POSITION} long"))
    known = old.drop(FILE, POSITION).selectExpr("*", f"false AS {DELETED}")
    events = rows.unionByName(known) if meets_old else rows
    newest = newest_of_keys(events, keys=["k"], sequence_by=sequence_by) if sequence_by else one_of_keys(events, keys=["k"])
    return read_verdicts(SparkRows(compare(newest, old, row_key=["k"], columns=COLUMNS)))


def _schema(spark: SparkSession, ddl: str) -> Any:
    return spark.createDataFrame([], ddl).schema


def comparable(decided: Decided) -> list[list[str]]:
    tables = (decided.new, decided.old, decided.deletions, decided.places.to_arrow())
    return [sorted(repr([*row.values()]).replace("-0.0", "0.0") for row in table.to_pylist()) for table in tables]


@pytest.mark.spark
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(case=cases(unique=False), meets_old=st.booleans())
def test_local_merge_chooses_the_same_newest_row_as_spark(spark: SparkSession, case: Case, meets_old: bool) -> None:
    rule = MergeRule(("k",), ("n",), meets_old=meets_old)
    decided = decide_rows(rule, case.rows, case.old, columns=COLUMNS)
    keyed = [(row["k"], row["n"], row[DELETED]) for row in case.rows.to_pylist()]
    keyed += [(row["k"], row["n"], False) for row in case.old.to_pylist()] if meets_old else []
    if decided is None:  # only where a nested or floating-point column has to break a tie
        assert len(set(keyed)) < len(keyed)
        return
    expected = decide_on_spark(spark, case, meets_old=meets_old, sequence_by=("n",))
    assert comparable(decided) == comparable(expected)


@pytest.mark.spark
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(case=cases(unique=True))
def test_rows_without_a_sequence_replace_the_old_ones(spark: SparkSession, case: Case) -> None:
    decided = decide_rows(MergeRule(("k",), (), meets_old=False), case.rows, case.old, columns=COLUMNS)
    assert decided is not None
    assert comparable(decided) == comparable(decide_on_spark(spark, case, meets_old=False, sequence_by=()))


def test_key_with_several_rows_and_no_sequence_is_left_to_spark() -> None:
    row = {"k": "a", "n": 1, "amount": None, "score": None, "tags": None, "at": None}
    rows = pa.Table.from_pylist([row, row], schema=SCHEMA)
    old = rows.slice(0, 0).append_column(FILE, pa.array([], pa.string())).append_column(POSITION, pa.array([], pa.int64()))
    assert decide_rows(MergeRule(("k",), (), meets_old=False), rows, old, columns=COLUMNS) is None


def test_duplicate_events_need_no_order_of_nested_values() -> None:
    row = {"k": "a", "n": 1, "amount": None, "score": 0.5, "tags": ["x", None], "at": None}
    none = pa.table({FILE: pa.array([], pa.string()), POSITION: pa.array([], pa.int64())})
    rule = MergeRule(("k",), ("n",), meets_old=False)

    def decide(*rows: dict[str, Any]) -> Decided | None:
        given = pa.Table.from_pylist(list(rows), schema=SCHEMA)
        old = given.slice(0, 0).append_column(FILE, none[FILE]).append_column(POSITION, none[POSITION])
        return decide_rows(rule, given, old, columns=COLUMNS)

    repeated = decide(row, {**row, "n": 0, "tags": []}, row)
    assert repeated is not None
    assert repeated.new.to_pylist() == [row]
    assert decide(row, {**row, "tags": ["y"]}) is None, "which of them is newer, Spark has to say"


@pytest.mark.spark
def test_report_of_rows_says_what_metrics_say(spark: SparkSession, tmp_path: Path) -> None:
    rows = spark.sql(
        "SELECT * FROM VALUES (1, 'a', 7L), (2, NULL, 8L), (3, 'c', 9L), (NULL, 'ü', 10L) AS t(n, name, kafka_offset)"
    )
    expectations = (
        Expectation("n is small", "n < 3", "quarantine", 1),
        Expectation("there is a name", "name IS NOT NULL", "warn", 2),
        Expectation("n is known", "n IS NOT NULL", "quarantine", 3),
        Expectation("the offset is known", "kafka_offset IS NOT NULL", "drop", 4),
    )
    measured = measure(rows, expectations)
    report = measured.read_report(to_arrow(measured.reported))
    values = measured.rows.agg(*measured.metrics()).first()
    assert values is not None
    assert report.results == measured.read_metrics(values.asDict())
    assert [result.failed for result in report.results] == [2, 1, 1, 0]
    assert report.good.to_pylist() == to_arrow(measured.good).to_pylist()
    assert report.refused.to_pylist() == to_arrow(measured.refused).to_pylist()
