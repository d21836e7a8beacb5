"""Merged states yield exactly the rows of the query over all rows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, Phase, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from pyspark.errors import ArithmeticException, PySparkException

from headrace.build.aggregates.algebra import Algebra, find_algebra
from headrace.build.aggregates.states import REDO, merge_states, rows_of_states, with_state
from headrace.build.source import run_source
from headrace.build.types import spec_columns
from headrace.iceberg.catalog.spark import open_spark_catalog
from headrace.settings import load_settings
from headrace.spec.model.layers import STATE, LayerTable
from headrace.spec.model.pipeline import TableName
from headrace.spec.sql.aggregates import Recomputed
from tests.build.aggregates.group_table import group_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

FACTS = TableName("mine", "facts")
SCHEMA = """id INT, g STRING, day DATE, i INT, l BIGINT, d DECIMAL(12, 2), w DECIMAL(27, 6),
f DOUBLE, s STRING, b BOOLEAN, at TIMESTAMP"""
QUERY = """\
SELECT
    g AS n, day, upper(g) AS shouted,
    count(*) AS events, count(d) AS amounts, count_if(i > 3) AS large, count(i, d) AS both,
    sum(i) AS i_sum, sum(l) AS l_sum, sum(d) AS d_sum, sum(w) AS w_sum, sum(IF(b, d, 0)) AS true_sum,
    sum(d) FILTER (WHERE i > 3) AS filtered, coalesce(sum(d) FILTER (WHERE s = 'a -- b'), 0) AS coalesced,
    sum(CASE WHEN b THEN 1 END) AS cased,
    avg(i) AS i_avg, avg(l) AS l_avg, avg(d) AS d_avg, avg(w) AS w_avg, avg(CAST(i AS DECIMAL(12, 8)) / 7) AS small_avg,
    avg(d) FILTER (WHERE b) AS b_avg,
    min(d) AS d_min, max(d) AS d_max, min(f) AS f_min, max(f) AS f_max, min(s) AS s_min, max(at) AS newest,
    max(struct(at, id)) AS last_struct, min(day) FILTER (WHERE b) AS first_day,
    bool_and(b) AS all_true, bool_or(b) AS any_true, every(i > 1) AS every_large, some(i > 5) AS some_large, any(b) AS any_b,
    max_by(s, struct(at, id)) AS last_s, min_by(i, struct(at, id)) FILTER (WHERE i IS NOT NULL) AS first_i,
    CAST(CAST(count_if(b) AS DECIMAL(18, 0)) / count(*) AS DECIMAL(7, 6)) AS rate,
    array_sort(collect_set(s)) AS all_s, sort_array(collect_set(d) FILTER (WHERE b)) AS true_amounts,
    size(collect_set(date(at))) AS days, array_sort(collect_set(at)) AS moments,
    sum(d) / nullif(count(d), 0) AS by_hand, max(at) - min(at) > INTERVAL 1 HOUR AS is_long
FROM mine.facts -- a comment, with an ' in it
WHERE coalesce(i, 0) >= 0
GROUP BY g, day
"""


@pytest.fixture(scope="module")
def small_spark(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> SparkSession:
    """A session as small builds have it: it compiles nothing."""
    settings = load_settings(flags={}, environ={}, folder=tmp_path_factory.mktemp("states"))
    return open_spark_catalog(spark, settings, rows="few")


@dataclass
class Facts:
    """Rows, and what a table over them holds after it was computed at once."""

    spark: SparkSession
    table: LayerTable
    algebra: Algebra

    def stated(self, rows: list[dict[str, Any]]) -> DataFrame:
        facts = self.spark.createDataFrame([tuple(row.values()) for row in rows], SCHEMA).coalesce(1)
        return run_source(self.spark, replace(self.table, source=self.algebra.source), {FACTS: facts})

    def whole(self, rows: list[dict[str, Any]]) -> dict[tuple[Any, ...], dict[str, Any]]:
        facts = self.spark.createDataFrame([tuple(row.values()) for row in rows], SCHEMA).coalesce(1)
        return self.by_key(run_source(self.spark, self.table, {FACTS: facts}))

    def by_key(self, rows: DataFrame) -> dict[tuple[Any, ...], dict[str, Any]]:
        dicts = [row.asDict(recursive=True) for row in rows.collect()]
        return {tuple(row[key] for key in self.table.keys): row for row in dicts}


def open_facts(spark: SparkSession, query: str = QUERY, keys: tuple[str, ...] = ("n", "day")) -> Facts:
    table = group_table(query, keys=keys)
    algebra = find_algebra(spark, table, {FACTS: spec_columns(spark.createDataFrame([], SCHEMA).schema)})
    assert isinstance(algebra, Algebra), algebra
    return Facts(spark, table, algebra)


def random_rows(random: Random, count: int, *, first_id: int = 0) -> list[dict[str, Any]]:
    def maybe(value: Any) -> Any:
        return None if random.random() < 0.2 else value

    return [
        {
            "id": first_id + number,
            "g": maybe(random.choice("xyz")),
            "day": date(2026, 1, random.randint(1, 6)),
            "i": maybe(random.randint(-2, 9)),
            "l": maybe(random.choice([random.randint(-9, 9), random.randint(-(2**40), 2**52)])),
            "d": maybe(Decimal(random.randint(-10_000, 10_000_000)) / 100),
            "w": maybe(Decimal(random.randint(-(10**26), 10**26)).scaleb(-6)),
            "f": maybe(random.choice([random.random(), float("nan"), float("inf"), 1e300])),
            "s": maybe(random.choice(["a -- b", "b", 'c"\n\t\\ü☃'])),
            "b": maybe(random.random() < 0.7),
            "at": datetime(2026, 1, 1, tzinfo=timezone.utc) + timedelta(microseconds=random.randrange(10**10)),
        }
        for number in range(count)
    ]


def comparable(rows: dict[tuple[Any, ...], dict[str, Any]]) -> dict[tuple[Any, ...], str]:
    return {key: repr({name: value for name, value in row.items() if name != STATE}) for key, row in rows.items()}


@pytest.fixture(scope="module")
def facts(small_spark: SparkSession) -> Facts:
    """The table of all aggregates, whose query is analysed once."""
    return open_facts(small_spark)


@given(seed=st.integers(0, 2**32))
@hypothesis_settings(max_examples=3, phases=[Phase.explicit, Phase.generate], suppress_health_check=list(HealthCheck))
def test_merged_states_equal_the_whole_query(seed: int, facts: Facts) -> None:
    random = Random(seed)
    rows = random_rows(random, 60)
    stored = with_state(facts.algebra, facts.stated(rows))
    merged_keys = 0
    for number in range(2):
        gone = random.sample(rows, random.randint(0, len(rows) // (2 - number)))
        came = random_rows(random, random.randint(0, 12), first_id=1_000 * (number + 1))
        removed = facts.stated(gone) if gone else None
        stored = facts.spark.createDataFrame(stored.collect(), stored.schema)
        merged = merge_states(facts.algebra, old=stored, added=facts.stated(came), removed=removed, knows_all=True)
        states_now = merged.collect()
        merged = facts.spark.createDataFrame(states_now, merged.schema)
        rows = [row for row in rows if row not in gone] + came
        wanted = facts.whole(rows)
        merged_rows = facts.by_key(rows_of_states(facts.algebra, merged).where(f"NOT {REDO}").drop(REDO))
        touched = {(row["n"], row["day"]) for row in states_now}
        again = {(row["n"], row["day"]) for row in states_now if row[REDO]}
        merged_keys += len(touched - again)
        assert comparable(merged_rows) == {key: row for key, row in comparable(wanted).items() if key in touched - again}
        assert {key for key in wanted if key in touched} <= set(merged_rows) | again
        stored = with_state(facts.algebra, facts.stated(rows))
        states = facts.by_key(stored)
        assert {key: row[STATE] for key, row in merged_rows.items()} == {key: states[key][STATE] for key in merged_rows}
    assert merged_keys


def test_removed_extreme_is_recomputed(small_spark: SparkSession) -> None:
    facts = open_facts(small_spark, "SELECT g, min(d) AS least, max_by(s, at) AS last FROM mine.facts GROUP BY g", ("g",))
    first, second, third = sorted(_rows_of_one_key(), key=lambda row: row["d"])
    stored = with_state(facts.algebra, facts.stated([first, second, third]))

    def redone(*, added: list[dict[str, Any]], removed: list[dict[str, Any]]) -> list[bool]:
        merged = merge_states(
            facts.algebra, old=stored, added=facts.stated(added), removed=facts.stated(removed), knows_all=True
        )
        return [row[REDO] for row in merged.collect()]

    assert redone(added=[], removed=[second]) == [False]
    assert redone(added=[], removed=[first]) == [True], "the least amount is gone"
    assert redone(added=[], removed=[third]) == [True], "the newest row is gone"
    assert redone(added=[{**first, "s": "z"}], removed=[first]) == [False], "another row has the same least amount"
    assert redone(added=[{**third, "s": "z"}], removed=[]) == [True], "Spark decides between rows of the same time"
    assert redone(added=[{**third, "i": 7}], removed=[]) == [False], "both have the same value"
    assert redone(added=[{**third, "s": "z", "at": third["at"] + timedelta(days=1)}], removed=[third]) == [False]
    assert redone(added=[{**third, "i": 7}], removed=[third]) == [False], (
        "the row of the newest time has changed in other columns"
    )
    assert redone(added=[{**third, "s": "z"}], removed=[third]) == [True], "another row may be of the newest time"
    assert redone(added=[], removed=[{**first, "d": Decimal(-9)}]) == [True], "such a row was never added"


def _rows_of_one_key() -> list[dict[str, Any]]:
    row = {**random_rows(Random(1), 1)[0], "g": "x", "s": "a", "day": date(2026, 1, 1)}
    start = datetime(2026, 1, 1, tzinfo=timezone.utc)
    return [{**row, "id": n, "d": Decimal(n), "at": start + timedelta(hours=n)} for n in (1, 2, 3)]


def test_removed_set_value_is_recomputed(small_spark: SparkSession) -> None:
    facts = open_facts(small_spark, "SELECT g, array_sort(collect_set(s)) AS all_s FROM mine.facts GROUP BY g", ("g",))
    one, two, three = (dict(row, s=value) for row, value in zip(_rows_of_one_key(), ("a", "a", None), strict=True))
    stored = with_state(facts.algebra, facts.stated([one, two, three]))

    def merged(*, added: list[dict[str, Any]], removed: list[dict[str, Any]]) -> list[tuple[list[str], bool]]:
        states = merge_states(
            facts.algebra, old=stored, added=facts.stated(added), removed=facts.stated(removed), knows_all=True
        )
        return [(row["all_s"], row[REDO]) for row in rows_of_states(facts.algebra, states).collect()]

    assert merged(added=[], removed=[three]) == [(["a"], False)], "it has no value"
    assert merged(added=[dict(one, s="b")], removed=[]) == [(["a", "b"], False)]
    assert merged(added=[dict(one, i=9)], removed=[one]) == [(["a"], False)], "an added row has the value"
    assert [redo for _, redo in merged(added=[dict(one, s="b")], removed=[one])] == [True], "another row may have the value"
    assert merged(added=[], removed=[one, two, three]) == []


def test_large_set_is_not_stored(small_spark: SparkSession) -> None:
    facts = open_facts(small_spark, "SELECT g, size(collect_set(i)) AS all_i FROM mine.facts GROUP BY g", ("g",))
    row = _rows_of_one_key()[0]
    for values, is_redone in ((100, False), (101, True)):
        stored = with_state(facts.algebra, facts.stated([dict(row, i=number) for number in range(values)]))
        merged = merge_states(facts.algebra, old=stored, added=facts.stated([row]), removed=None, knows_all=True)
        assert [row[REDO] for row in merged.collect()] == [is_redone]


def test_invalid_state_is_recomputed(small_spark: SparkSession) -> None:
    query = "SELECT g, count(*) AS events, max(d) AS most FROM mine.facts GROUP BY g"
    facts = open_facts(small_spark, query, ("g",))
    other = open_facts(small_spark, query.replace("max(d)", "max(i)"), ("g",))
    rows = _rows_of_one_key()
    good = facts.by_key(with_state(facts.algebra, facts.stated(rows)))[("x",)][STATE]
    states = {
        None: True,
        "": True,
        "{": True,
        other.by_key(with_state(other.algebra, other.stated(rows)))[("x",)][STATE]: True,
        good.replace('"n":3', '"n":null'): True,
        good.replace('"n":3,', ""): True,
        good.replace(":3.00", ":null"): True,
        good: False,
    }
    assert len(states) == 8
    for state, is_redone in states.items():
        old = small_spark.createDataFrame([("x", state)], f"g STRING, {STATE} STRING")
        merged = merge_states(facts.algebra, old=old, added=facts.stated(rows[:1]), removed=None, knows_all=True)
        assert [row[REDO] for row in merged.collect()] == [is_redone], state


def test_key_that_the_table_lacks_is_new_only_where_no_row_is_hidden(small_spark: SparkSession) -> None:
    facts = open_facts(small_spark, "SELECT g, count(*) AS events FROM mine.facts GROUP BY g", ("g",))
    rows = _rows_of_one_key()
    old = small_spark.createDataFrame([], f"g STRING, {STATE} STRING")
    for removed, knows_all, is_redone in ((None, True, False), (None, False, True), (facts.stated(rows[:1]), True, True)):
        merged = merge_states(facts.algebra, old=old, added=facts.stated(rows), removed=removed, knows_all=knows_all)
        assert [row[REDO] for row in merged.collect()] == [is_redone]


def test_key_without_rows_is_removed(small_spark: SparkSession) -> None:
    facts = open_facts(small_spark, "SELECT g, sum(d) / count(*) AS share FROM mine.facts GROUP BY g", ("g",))
    rows = _rows_of_one_key()
    stored = with_state(facts.algebra, facts.stated(rows))
    merged = merge_states(facts.algebra, old=stored, added=facts.stated([]), removed=facts.stated(rows), knows_all=True)
    assert rows_of_states(facts.algebra, merged).collect() == []
    assert [row[REDO] for row in merged.collect()] == [False]


def test_sum_that_overflows_fails_as_in_the_whole_query(small_spark: SparkSession) -> None:
    facts = open_facts(small_spark, "SELECT g, sum(l) AS total FROM mine.facts GROUP BY g", ("g",))
    rows = [{**row, "l": 2**62} for row in _rows_of_one_key()]
    stored = with_state(facts.algebra, facts.stated(rows[:1]))
    merged = merge_states(facts.algebra, old=stored, added=facts.stated(rows[1:2]), removed=None, knows_all=True)
    with pytest.raises(PySparkException, match=r"(?i)overflow"):
        merged.collect()
    with pytest.raises(ArithmeticException):
        facts.whole(rows)


@pytest.mark.parametrize(
    ("aggregate", "reason"),
    [
        ("sum(f)", "sum(…) of a double, whose digits depend on the order of rows"),
        ("avg(f)", "avg(…) of a double, whose digits depend on the order of rows"),
        ("sum(s)", "sum(…) of a string, whose digits depend on the order of rows"),
        ("avg(CAST(d AS DECIMAL(38, 2)))", "avg(…) of a decimal(38,2), which has too many digits"),
        ("max(CAST(s AS BINARY))", "max(…) of a binary"),
        ("max_by(map(s, i), at)", "max_by(…) of a map<string, int>"),
        ("array_sort(collect_set(f))", "collect_set(…) of a double"),
    ],
)
def test_types_whose_states_do_not_merge(aggregate: str, reason: str, small_spark: SparkSession) -> None:
    table = group_table(f"SELECT g, {aggregate} AS x FROM mine.facts GROUP BY g", keys=["g"])
    columns = {FACTS: spec_columns(small_spark.createDataFrame([], SCHEMA).schema)}
    assert find_algebra(small_spark, table, columns) == Recomputed(reason)
