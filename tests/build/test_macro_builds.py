"""Queries with macros are built like queries without, and Spark's errors in them are located at the macro call."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headrace.errors import SpecError
from headrace.sessions.building import plan
from headrace.spec.sql.spark_words import spark_words
from tests.build.layer_lake import Event, LayerLake
from tests.support.folders import write_files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

MACROS = """\
-- What is added to a day.
CREATE MACRO later(day, days) AS date_add(day, days);
CREATE MACRO has(xs, needle) AS exists(xs, x -> x = needle);
CREATE MACRO double_of(a) AS a + a;
CREATE MACRO is_large(a) AS a > 5 OR a < -5;
"""
BAD = {
    "in a body": (
        "SELECT id,\n  upper(later(amount,\n  'x')) AS m FROM pond.events",
        "a/bad.sql:2:9",
        '(in macro "later", pipelines/pond/macros.sql:2)',
    ),
    "in an argument": (
        "SELECT id,\n  later(current_date(),\n    date_add(amount, 'x')) AS m FROM pond.events",
        "a/bad.sql:3:5",
        "Spark refuses the query",
    ),
    "behind two calls": (
        "SELECT double_of(n) AS n, later(at, 1) AS o, date_add(amount, 'x') AS m FROM pond.events",
        "a/bad.sql:1:46",
        "Spark refuses the query",
    ),
    "behind an input": (
        "WITH e AS (SELECT double_of(n) AS o, * FROM pond.events) SELECT double_of(o) AS n, date_add(amount, 'x') AS m FROM e",
        "a/bad.sql:1:84",
        "Spark refuses the query",
    ),
}


def event(name: str, n: int) -> Event:
    return Event(id=name, k="k1", g="k2", n=n, cents=100, op="c", minutes=n)


@pytest.mark.parametrize(("text", "where", "what"), BAD.values(), ids=BAD)
def test_spark_errors_are_located_at_the_macro_call(
    text: str, where: str, what: str, spark: SparkSession, tmp_path: Path
) -> None:
    with pytest.raises(SpecError) as raised:
        LayerLake(tmp_path, spark, {"macros.sql": MACROS, "a/bad.sql": text})
    assert raised.value.where == f"pipelines/pond/{where}"
    assert what in raised.value.what


def test_table_is_built_the_same_with_and_without_macros(spark: SparkSession, tmp_path: Path) -> None:
    header = "/*\nkeys: [id]\nsequence_by: n\napply_as_deletes: {}\nexpect:\n  it is small: {}\n*/\n"
    written = {
        "a/with_macros.sql": header.format("double_of(n) = 8", "{that: NOT is_large(n), on_failure: drop}")
        + "SELECT id, n, has(array(g, k), id) AS own, 2 * double_of(n + 1) AS m, x FROM\n"
        "(SELECT *, n AS x FROM pond.events) WHERE NOT is_large(n - 100) IS NULL",
        "a/without.sql": header.format("n + n = 8", "{that: NOT (n > 5 OR n < -5), on_failure: drop}")
        + "SELECT id, n, id IN (g, k) AS own, 2 * ((n + 1) + (n + 1)) AS m, n AS x FROM pond.events",
    }
    layer_lake = LayerLake(tmp_path, spark, {"macros.sql": MACROS, **written})
    layer_lake.land([event(f"k{number % 7}", number - 3) for number in range(20)])
    layer_lake.build()
    rows = layer_lake.all_rows()
    assert rows["with_macros"] == rows["without"]
    assert len(rows["without"]) > 3


def test_rewriting_a_query_with_macros_rebuilds_nothing(spark: SparkSession, tmp_path: Path) -> None:
    layer_lake = LayerLake(tmp_path, spark, {"a/doubled.sql": "SELECT id, abs(n + n) AS m FROM pond.events"})
    layer_lake.land([event("a", 1)])
    layer_lake.build()
    files = {"macros.sql": MACROS, "a/doubled.sql": "SELECT id, abs(double_of(n)) AS m FROM pond.events"}
    write_files(layer_lake.pipeline.folder, files)
    layer_lake.reload()
    assert [planned.action for planned in plan(layer_lake.settings, layer_lake.pipeline, table=None, full_refresh=False)] == [
        "nothing"
    ]
    write_files(layer_lake.pipeline.folder, {"macros.sql": MACROS.replace("a + a", "2 * a")})
    layer_lake.reload()
    assert [planned.action for planned in plan(layer_lake.settings, layer_lake.pipeline, table=None, full_refresh=False)] == [
        "refresh"
    ]


def test_reserved_macro_names_match_spark(spark: SparkSession) -> None:
    functions = {row[0] for row in spark.sql("SHOW SYSTEM FUNCTIONS").collect()}
    keywords = {row[0].lower() for row in spark.sql("SELECT keyword FROM sql_keywords()").collect()}
    assert spark_words() == {word for word in functions | keywords if word.replace("_", "").isalnum()}
