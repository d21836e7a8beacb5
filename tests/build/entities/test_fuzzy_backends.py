"""Compare records with Splink on DuckDB and on Spark: both give the same result."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, timedelta
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, cast

import polars as pl
import pytest

from headrace.build.entities import scoring
from headrace.build.entities.alike import LEFT, RIGHT, WEIGHT, comparable
from headrace.build.entities.names import NODE
from headrace.build.entities.scoring import number_records, weigh
from headrace.build.entities.similarity import jaro_winkler
from headrace.build.entities.splink_duckdb import LONGEST, can_compare, compare_on_duckdb, duckdb_linker
from headrace.build.entities.splink_model import ID_LEFT, ID_RIGHT, compared_pairs
from headrace.build.entities.splink_spark import compare_on_spark
from headrace.build.entities.weights import fixed_weights
from headrace.spec.model.fuzzy import Block, Comparison, Fuzzy
from headrace.spec.model.layers import LayerTable, Query
from headrace.spec.model.pipeline import TableName
from headrace.spec.problems import Place

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FUZZY = Fuzzy(
    (
        Comparison("name", "name"),
        Comparison("email", "email"),
        Comparison("phone", "phone"),
        Comparison("born_on", "date"),
        Comparison("number", "exact"),
    ),
    (Block(("city",)), Block(("born_on",)), Block(("name", "number"))),
    -10.0,
)
NAMES = (
    "Jessica James",
    "Sarah Straße",
    "Zoë Müller",
    "Иванов Пётр",
    "王伟",
    "王小伟",
    "Łukasz Ødegård",
    "김민준",
    "\U0001d49cnn 😀 Lee",
    "e\x01b",
    "O'Neil",
)
ALPHABET = "abceilnorst üжр伟小😀\U0001d4eb'"


def typo(random: Random, text: str) -> str:
    letters = list(text)
    for _ in range(random.choice((0, 0, 1, 1, 2, 3))):
        place = random.randrange(len(letters) or 1)
        match random.randrange(4):
            case 0:
                letters.insert(place, random.choice(ALPHABET))
            case 1 if letters:
                del letters[place]
            case 2 if letters:
                letters[place] = random.choice(ALPHABET)
            case _ if place + 1 < len(letters):
                letters[place], letters[place + 1] = letters[place + 1], letters[place]
    return "".join(letters)


def random_records(count: int, *, seed: int = 3) -> pl.DataFrame:
    """Return records that are alike in every way and to every degree, as a build compares them."""
    random = Random(seed)

    def maybe(value: object) -> object:
        return None if random.random() < 0.1 else value

    rows = [
        {
            "name": maybe(typo(random, random.choice(NAMES))),
            "email": maybe(
                typo(random, random.choice(("jess.james", "жанна.лее", "ann+x"))) + "@" + random.choice(("a.org", "пример.рф"))
            ),
            "phone": maybe(f"+1 415 555 {random.randrange(2000, 2040)}"),
            "born_on": maybe(date(1990, 1, 1) + timedelta(days=random.randrange(200))),
            "number": maybe(random.randrange(-3, 3)),
            "city": maybe(random.choice(("Ulm", "Köln", "東京", ""))),
        }
        for _ in range(count)
    ]
    schema = {
        "name": pl.String,
        "email": pl.String,
        "phone": pl.String,
        "born_on": pl.Date,
        "number": pl.Int64,
        "city": pl.String,
    }
    values = comparable(pl.DataFrame(rows, schema=schema), FUZZY)
    return values.with_row_index(NODE)


@pytest.mark.spark
def test_duckdb_and_spark_give_the_same_pairs_and_weights(spark: SparkSession) -> None:
    records, weights = random_records(400), fixed_weights(FUZZY)
    numbered = number_records(records)
    on_duckdb = weigh(records[NODE], compare_on_duckdb(numbered, FUZZY, weights), FUZZY, weights).sort(LEFT, RIGHT)
    on_spark = weigh(records[NODE], compare_on_spark(numbered, FUZZY, weights, spark=spark), FUZZY, weights).sort(LEFT, RIGHT)
    assert on_duckdb.equals(on_spark), "0 pairs differ, and no weight does"
    assert (on_duckdb.height > 1000, on_duckdb[WEIGHT].n_unique() > 50) == (True, True)
    with duckdb_linker(numbered, FUZZY, weights) as (linker, connection):
        predictions = linker.inference.predict(threshold_match_weight=FUZZY.at_least, warning_mode="never")
        unchecked = connection.table(predictions.physical_name).select(ID_LEFT, ID_RIGHT, "match_weight").pl()
    both = on_duckdb.join(unchecked, left_on=[LEFT, RIGHT], right_on=[ID_LEFT, ID_RIGHT])
    overrated = both.select((pl.col("match_weight") - pl.col(WEIGHT)).alias("by"))
    assert overrated.filter(pl.col("by") < -1e-9).is_empty(), "DuckDB alone never underrates"
    assert 0 < overrated.filter(pl.col("by") > 1e-9).height < both.height / 10, "pairs that DuckDB alone overrates are tested"


@pytest.mark.parametrize(
    ("left", "right", "wanted"),
    [
        ("jessaica", "jessica", 0.9321428571428572),
        ("martha", "marhta", 0.9611111111111111),
        ("ab", "ba", 0.0),
        ("\u043f\u0442\u0440\u043e\u0432", "\u043ft\u0442\u0440o\u043e\u0432", 0.9142857142857143),
        ("same", "same", 1.0),
        ("a", "b", 0.0),
    ],
)
def test_jaro_winkler_equals_commons_text(left: str, right: str, wanted: float) -> None:
    assert jaro_winkler(left, right) == jaro_winkler(right, left) == pytest.approx(wanted, abs=1e-12)


def test_long_texts_beyond_ascii_are_left_to_spark() -> None:
    weights = fixed_weights(FUZZY)

    def fits(*names: str) -> bool:
        return can_compare(random_records(len(names)).with_columns(pl.Series("c0", names)), FUZZY, weights)

    assert fits("x" * 500)
    assert fits("ж" * LONGEST)
    assert not fits("ж" * (LONGEST + 1))
    assert not fits("😀" * (LONGEST // 2 + 1)), "two code units each"
    assert not fits("a" * (LONGEST + 1), "ж"), "an ASCII text is translated together with one that is not"


def test_spark_compares_many_pairs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    used: list[str] = []

    def backend(name: str) -> Callable[..., pl.DataFrame]:
        def compare(records: pl.DataFrame, *_: object, **__: object) -> pl.DataFrame:
            used.append(name)
            return pl.DataFrame(schema=dict.fromkeys(compared_pairs(FUZZY), pl.Int32))

        return compare

    monkeypatch.setattr(scoring, "compare_on_duckdb", backend("duckdb"))
    monkeypatch.setattr(scoring, "compare_on_spark", backend("spark"))
    records = random_records(50)
    table = LayerTable(
        kind="entities",
        fuzzy=FUZZY,
        table=TableName("mine", "index"),
        layer="semantic",
        path=tmp_path,
        place=Place("index.sql", "mine"),
        source=Query("SELECT 1", ()),
        drivers=(),
    )
    score = scoring.splink_score(table, spark=cast("SparkSession", None))
    assert score is not None
    score(records)
    score(records.with_columns(pl.lit("ж" * (LONGEST + 1)).alias("c0")))
    monkeypatch.setattr(scoring, "MOST_PAIRS_IN_PROCESS", 3)
    score(records)
    assert used == ["duckdb", "spark", "spark"]
