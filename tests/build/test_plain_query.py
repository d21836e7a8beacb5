"""Queries without Spark return the same rows, names and types as Spark; unsupported queries are left to Spark."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal as Number
from random import Random
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa
import pytest
from pyspark.sql import functions as F  # noqa: N812

from headrace.build.arrow import to_spark
from headrace.build.plain_query import NotPlainError, plain_condition, plain_query
from headrace.build.types import spark_schema, spec_columns
from headrace.iceberg.schema.columns import iceberg_schema
from headrace.spec.model.pipeline import TableName
from headrace.spec.model.types import Array, Column, Decimal, Primitive, Struct

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

EVENTS = TableName("pond", "events")
COLUMNS = (
    Column("id", Primitive("string")),
    Column("Mixed", Primitive("string")),
    Column("n", Primitive("int")),
    Column("m", Primitive("int")),
    Column("big", Primitive("long")),
    Column("flag", Primitive("boolean")),
    Column("day", Primitive("date")),
    Column("at", Primitive("timestamp")),
    Column("until", Primitive("timestamp")),
    Column("clock", Primitive("timestamp_ntz")),
    Column("amount", Decimal(10, 2)),
    Column("ratio", Primitive("double")),
    Column("raw", Primitive("binary")),
)
NESTED = (*COLUMNS, Column("tags", Array(Primitive("string"))), Column("s", Struct((Column("id", Primitive("string")),))))
EVERYTHING = "id, Mixed, n, big, flag, day, at, clock, amount, ratio, raw"

SAME = (
    f"SELECT {EVERYTHING} FROM pond.events",
    "SELECT ID, mixed, N FROM pond.events",
    "SELECT `id` AS `key`, e.n AS m, E.big b FROM pond.events AS e WHERE e.flag",
    "SELECT 'shop' AS source, \"pay\" AS other, '' AS empty, 7 AS seven, 2147483647 AS most, id FROM pond.events",
    "SELECT true AS yes, FALSE AS no, id FROM pond.events",
    """SELECT CAST(NULL AS STRING) AS a, CAST(NULL AS INT) AS b, CAST(NULL AS BIGINT) AS c, CAST(NULL AS BOOLEAN) AS d,
        CAST(NULL AS DATE) AS e, CAST(NULL AS TIMESTAMP) AS f, id FROM pond.events""",
    "SELECT coalesce(id, Mixed, 'none') AS a, coalesce(n, m, 0) AS b, coalesce(at, until) AS c FROM pond.events",
    "SELECT coalesce(amount, amount) AS a, coalesce(ratio, ratio) AS b, nvl(id, Mixed) AS c FROM pond.events",
    "SELECT id FROM pond.events WHERE id IS NULL",
    "SELECT id FROM pond.events WHERE id IS NOT NULL AND n <> 1 OR NOT (Mixed = 'a' AND flag)",
    "SELECT id FROM pond.events WHERE at = until OR day <> day OR n = m OR id == Mixed",
    "SELECT id FROM pond.events WHERE coalesce(id, '') <> ''",
    "SELECT id, n FROM pond.events WHERE n = 1 UNION ALL SELECT Mixed, m FROM pond.events WHERE m = 2",
    "/* a comment */ SELECT id -- another\n, n FROM pond.events UNION ALL SELECT 'x', n FROM pond.events UNION ALL "
    "SELECT CAST(NULL AS STRING), m FROM pond.events",
    "SELECT n AS m, m AS n FROM pond.events",
    "SELECT CAST(NULL AS VARCHAR(3)) AS a, id FROM pond.events",
)
LEFT_TO_SPARK = (
    "SELECT * FROM pond.events",
    "SELECT DISTINCT id FROM pond.events",
    "SELECT id FROM pond.events LIMIT 1",
    "SELECT id FROM pond.events ORDER BY id",
    "SELECT /*+ COALESCE(1) */ id FROM pond.events",
    "SELECT id FROM pond.events GROUP BY id",
    "SELECT id FROM pond.events GROUP BY ALL",
    "SELECT id FROM pond.events HAVING id = 'a'",
    "SELECT id FROM pond.events TABLESAMPLE (10 PERCENT)",
    "SELECT id FROM pond.events VERSION AS OF 1",
    "SELECT id FROM pond.events, pond.events AS other",
    "SELECT e.id FROM pond.events e JOIN pond.events o ON e.id = o.id",
    "SELECT id FROM pond.events LATERAL VIEW explode(tags) AS tag",
    "SELECT id FROM (SELECT id FROM pond.events)",
    "WITH e AS (SELECT id FROM pond.events) SELECT id FROM e",
    "SELECT id FROM pond.events UNION SELECT id FROM pond.events",
    "SELECT id FROM pond.events UNION ALL BY NAME SELECT id FROM pond.events",
    "SELECT id FROM pond.events EXCEPT ALL SELECT id FROM pond.events",
    "SELECT id FROM pond.events UNION ALL SELECT n FROM pond.events",
    "SELECT id FROM pond.events UNION ALL SELECT id, n FROM pond.events",
    "SELECT id FROM pond.events UNION ALL (SELECT id FROM pond.events LIMIT 1)",
    "SELECT key FROM pond.events AS e(key)",
    "SELECT events.id FROM pond.events",
    "SELECT pond.events.id FROM pond.events",
    "SELECT id FROM pond.others",
    "SELECT unknown FROM pond.events",
    "SELECT id AS a, a AS b FROM pond.events",
    "SELECT id, id FROM pond.events",
    "SELECT 'x' AS a FROM pond.events",
    "SELECT 'x', id FROM pond.events",
    "SELECT NULL AS a, id FROM pond.events",
    "SELECT 1.5 AS a, id FROM pond.events",
    "SELECT 1e3 AS a, id FROM pond.events",
    "SELECT 1L AS a, id FROM pond.events",
    "SELECT -1 AS a, id FROM pond.events",
    "SELECT 2147483648 AS a, id FROM pond.events",
    "SELECT 'a' 'b' AS a, id FROM pond.events",
    "SELECT 'it''s' AS a, id FROM pond.events",
    "SELECT r'a' AS a, id FROM pond.events",
    "SELECT X'1F' AS a, id FROM pond.events",
    "SELECT 'a\\nb' AS a, id FROM pond.events",
    "SELECT DATE '2026-01-01' AS a, id FROM pond.events",
    "SELECT id AS (a, b) FROM pond.events",
    "SELECT upper(id) AS a FROM pond.events",
    "SELECT current_date AS a, id FROM pond.events",
    "SELECT CAST(n AS STRING) AS a FROM pond.events",
    "SELECT CAST(NULL AS DECIMAL(3, 1)) AS a, id FROM pond.events",
    "SELECT CAST(NULL AS ARRAY<STRING>) AS a, id FROM pond.events",
    "SELECT n + m AS a FROM pond.events",
    "SELECT id || Mixed AS a FROM pond.events",
    "SELECT IF(flag, id, Mixed) AS a FROM pond.events",
    "SELECT CASE WHEN flag THEN id END AS a FROM pond.events",
    "SELECT n = 1 AS a FROM pond.events",
    "SELECT coalesce(id, n) AS a FROM pond.events",
    "SELECT coalesce(n, big) AS a FROM pond.events",
    "SELECT tags FROM pond.events",
    "SELECT tags[0] AS a FROM pond.events",
    "SELECT s.id FROM pond.events",
    "SELECT id FROM pond.events WHERE n = '1'",
    "SELECT id FROM pond.events WHERE big = 1",
    "SELECT id FROM pond.events WHERE at = '2026-01-01'",
    "SELECT id FROM pond.events WHERE ratio = ratio",
    "SELECT id FROM pond.events WHERE amount = amount",
    "SELECT id FROM pond.events WHERE clock = clock",
    "SELECT id FROM pond.events WHERE n < 1",
    "SELECT id FROM pond.events WHERE n BETWEEN 1 AND 2",
    "SELECT id FROM pond.events WHERE id <=> Mixed",
    "SELECT id FROM pond.events WHERE id IN ('a')",
    "SELECT id FROM pond.events WHERE id LIKE 'a%'",
    "SELECT id FROM pond.events WHERE flag IS TRUE",
    "SELECT id FROM pond.events WHERE id IS DISTINCT FROM Mixed",
    "SELECT id FROM pond.events WHERE id",
    "SELECT id FROM pond.events WHERE EXISTS (SELECT 1 FROM pond.events)",
    "SELECT id FROM pond.events WHERE rand() = 1",
)


def events(random: Random, count: int) -> pl.DataFrame:
    """Return rows whose values are often equal, and often null."""
    start = datetime(2026, 1, 1, tzinfo=timezone.utc)

    def moment() -> datetime | None:
        return random.choice((None, start, start + timedelta(microseconds=1)))

    def row() -> dict[str, Any]:
        return {
            **{name: random.choice((None, "", "a", "A", "a ", "ä", "it's")) for name in ("id", "Mixed")},
            **{name: random.choice((None, 0, 1, 2, 2**31 - 1)) for name in ("n", "m")},
            "big": random.choice((None, 1, 2**40)),
            "flag": random.choice((None, True, False)),
            "day": random.choice((None, date(2026, 1, 1), date(1969, 12, 31))),
            **{name: moment() for name in ("at", "until")},
            "clock": random.choice((None, datetime(2026, 3, 29, 2, 30))),
            "amount": random.choice((None, Number("1.50"), Number("-0.01"))),
            "ratio": random.choice((None, 0.0, -0.0, float("inf"))),
            "raw": random.choice((None, b"", b"\xff")),
        }

    return pl.DataFrame(pa.Table.from_pylist([row() for _ in range(count)], schema=iceberg_schema(COLUMNS).as_arrow()))


def counted(rows: Sequence[dict[str, Any]]) -> Counter[str]:
    return Counter(repr(sorted(row.items())) for row in rows)


def in_spark(spark: SparkSession, rows: pl.DataFrame) -> DataFrame:
    return to_spark(spark, rows, spark_schema(COLUMNS))


@pytest.mark.spark
def test_plain_queries_equal_spark(spark: SparkSession) -> None:
    rows = events(Random(1), 300)
    in_spark(spark, rows).createOrReplaceTempView("plain_events")
    for text in SAME:
        wanted = spark.sql(text.replace("pond.events", "plain_events"))
        query = plain_query(text, {EVENTS: NESTED})
        answer = query.run({EVENTS: rows.select(query.reads(EVENTS))})
        assert query.columns == spec_columns(wanted.schema), text
        assert answer.schema == pl.DataFrame(wanted.toArrow()).schema, text
        assert counted(answer.to_dicts()) == counted(wanted.toArrow().to_pylist()), text


def condition(random: Random, depth: int) -> str:
    """Return any condition that is known to mean the same."""
    if depth and random.random() < 0.8:
        left, right = condition(random, depth - 1), condition(random, depth - 1)
        return random.choice((f"({left} AND {right})", f"({left} OR {right})", f"NOT ({left})", f"{left} OR {right}"))
    kinds = (
        ("id", "Mixed", "'a'", "''", "coalesce(id, Mixed)", "CAST(NULL AS STRING)"),
        ("n", "M", "1", "coalesce(n, m, 0)"),
        ("big", "CAST(NULL AS BIGINT)"),
        ("day",),
        ("at", "until"),
        ("flag", "true", "false"),
    )
    kind = random.choice(kinds)
    one, other = random.choice(kind), random.choice(kind)
    tests = (f"{one} = {other}", f"{one} <> {other}", f"{one} IS NULL", f"{one} IS NOT NULL")
    return random.choice((*tests, one) if kind[0] == "flag" else tests)


@pytest.mark.spark
def test_plain_conditions_equal_spark(spark: SparkSession) -> None:
    random = Random(2)
    rows = events(random, 300)
    conditions = [condition(random, 3) for _ in range(60)]
    wanted = (
        in_spark(spark, rows)
        .select(*(F.expr(written).alias(f"c{place}") for place, written in enumerate(conditions)))
        .toArrow()
    )
    for place, written in enumerate(conditions):
        answer = rows.with_columns(plain_condition(written, NESTED).alias("found"))["found"]
        assert answer.to_list() == wanted[f"c{place}"].to_pylist(), written


@pytest.mark.parametrize("text", LEFT_TO_SPARK)
def test_unsupported_queries_are_left_to_spark(text: str) -> None:
    with pytest.raises(NotPlainError):
        plain_query(text, {EVENTS: NESTED})


@pytest.mark.parametrize("text", ["n > 1", "id LIKE 'a%'", "id", "n = 1, m = 2", "n = 1 FROM pond.events", "e.n = 1", "(("])
def test_unsupported_conditions_are_left_to_spark(text: str) -> None:
    with pytest.raises(NotPlainError):
        plain_condition(text, NESTED)
