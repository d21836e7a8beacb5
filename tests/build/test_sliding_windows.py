"""Running sums over sliding windows equal the sums that Spark computes for each window."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta, timezone
from decimal import Decimal as Money
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pytest

from headrace.build.source import run_source
from headrace.build.types import spark_schema
from headrace.spec import load_pipeline
from headrace.spec.model.layers import LayerTable, Query
from headrace.spec.model.types import Column, Decimal, Primitive, Struct
from headrace.spec.sql.queries import parse_query
from headrace.spec.sql.sliding_windows import add_running_sums

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COLUMNS = (
    Column("event_id", Primitive("string")),
    Column("customer_id", Primitive("string")),
    Column("created_at", Primitive("timestamp")),
    Column("amount", Decimal(10, 2)),
    Column("risk_score", Primitive("int")),
    Column("weight", Primitive("double")),
    Column("big", Primitive("long")),
    Column("wide", Decimal(30, 2)),
    Column("inside", Struct((Column("amount", Primitive("double")), Column("risk_score", Primitive("long"))))),
)
HOUR = "RANGE BETWEEN INTERVAL 1 HOUR PRECEDING AND CURRENT ROW"
EXACT = {
    "row_count": "count(*) OVER last_hour",
    "amounts": "count(amount) OVER last_hour",
    "total": "sum(amount) OVER last_hour",
    "risk": f"sum(risk_score) OVER (PARTITION BY customer_id ORDER BY created_at {HOUR})",
    "average": "avg(t.risk_score) OVER last_hour",
    "more_than_mean": "mean(`risk_score`) OVER last_hour + 1",
}
LEFT = {
    "average_amount": "avg(amount) OVER last_hour",
    "weight": "sum(weight) OVER last_hour",
    "big": "sum(big) OVER last_hour",
    "wide": "sum(wide) OVER last_hour",
    "largest": "max(amount) OVER last_hour",
    "plus_one": "sum(amount + 1) OVER last_hour",
    "newest_first": f"count(*) OVER (PARTITION BY customer_id ORDER BY created_at DESC {HOUR})",
    "by_rows": "count(*) OVER (PARTITION BY customer_id ORDER BY created_at ROWS BETWEEN 3 PRECEDING AND CURRENT ROW)",
    "both_sides": "count(*) OVER (PARTITION BY customer_id ORDER BY created_at "
    "RANGE BETWEEN INTERVAL 1 HOUR PRECEDING AND INTERVAL 1 HOUR FOLLOWING)",
    "by_number": "count(*) OVER (PARTITION BY customer_id ORDER BY risk_score RANGE BETWEEN 3 PRECEDING AND CURRENT ROW)",
    "whole": "count(*) OVER whole",
    "field_amount": "sum(inside.amount) OVER last_hour",
    "field_risk": "sum(`inside`.risk_score) OVER last_hour",
}


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> LayerTable:
    payments = load_pipeline("payments", environ={}, folder=tmp_path_factory.mktemp("windows"))
    return next(table for table in payments.tables if table.table.name == "charge_features")


def with_query(
    table: LayerTable, calls: dict[str, str], *, source: str = "payments_db.payment_charges_cleaned AS t"
) -> LayerTable:
    columns = ",\n".join(f"{sql} AS {name}" for name, sql in calls.items())
    text = f"""SELECT event_id, {columns}
FROM {source}
WINDOW
    last_hour AS (PARTITION BY t.customer_id ORDER BY created_at {HOUR}),
    whole AS (PARTITION BY customer_id)
"""
    return replace(table, source=parse_query(text, place=table.place).query)


def text_of(table: LayerTable) -> str:
    assert isinstance(table.source, Query)
    return table.source.text


def rewritten(table: LayerTable) -> LayerTable:
    return add_running_sums(table, {table.inputs[0]: COLUMNS})


def random_rows(seed: int, count: int) -> list[tuple[object, ...]]:
    """Return rows of few customers, close to one another and at equal times, some without a time, a customer or a value."""
    random, start = Random(seed), datetime(2026, 1, 1, tzinfo=timezone.utc)
    steps = (0, 1, 3_600_000_000, 3_600_000_001, 3_599_999_999)

    def maybe(value: object) -> object:
        return None if random.random() < 0.2 else value

    rows: list[tuple[object, ...]] = []
    for number in range(count):
        at = start + timedelta(microseconds=random.choice(steps) + random.randrange(4) * 1_800_000_000)
        amount = Money(random.randrange(-(10**10), 10**10)) / 100
        values = (
            maybe(amount),
            maybe(random.randrange(-(2**31), 2**31)),
            random.random(),
            number,
            amount,
            (random.random(), number),
        )
        rows.append((str(number), maybe(random.choice("ab")), maybe(at), *values))
    return rows


@pytest.mark.spark
@pytest.mark.parametrize("seed", range(4))
def test_running_sums_equal_window_sums(spark: SparkSession, table: LayerTable, seed: int) -> None:
    query = with_query(table, {**EXACT, **LEFT})
    frame = spark.createDataFrame(random_rows(seed, 120), spark_schema(COLUMNS)).coalesce(1)
    by_sums, wanted = (run_source(spark, text, {table.inputs[0]: frame}) for text in (rewritten(query), query))
    assert [(field.name, field.dataType) for field in by_sums.schema] == [
        (field.name, field.dataType) for field in wanted.schema
    ]
    assert sorted(map(repr, by_sums.collect())) == sorted(map(repr, wanted.collect()))


def test_exact_sums_are_rewritten_and_no_others(table: LayerTable) -> None:
    for name, sql in EXACT.items():
        query = with_query(table, {name: sql})
        assert "UNBOUNDED" in text_of(rewritten(query)), name
    query = with_query(table, LEFT)
    assert rewritten(query) == query


@pytest.mark.parametrize(
    "source",
    [
        "(SELECT *, weight AS amount2 FROM payments_db.payment_charges_cleaned) AS t",
        "payments_db.payment_charges_cleaned AS t JOIN payments_db.payment_charges_cleaned AS u USING (event_id)",
        "payments_db.payment_charges_cleaned AS t LATERAL VIEW explode(array(1)) AS amount2",
    ],
)
def test_name_that_may_not_be_a_column_of_the_table_is_left(table: LayerTable, source: str) -> None:
    query = with_query(table, EXACT, source=source)
    assert rewritten(query) == query


def test_references_move_with_the_text(table: LayerTable) -> None:
    query = rewritten(with_query(table, EXACT))
    assert isinstance(query.source, Query)
    (reference,) = query.source.references
    assert query.source.text[reference.start : reference.end] == "payments_db.payment_charges_cleaned"


def test_shipped_windows_are_running_sums(tmp_path: Path) -> None:
    payments = load_pipeline("payments", environ={}, folder=tmp_path)
    repeated = next(table for table in payments.tables if table.table.name == "repeated_events")
    columns = (Column("event_id", Primitive("string")), Column("turn", Primitive("timestamp")))
    assert "UNBOUNDED" in text_of(add_running_sums(repeated, {repeated.inputs[0]: columns}))
