"""Training weights on records: on frames, with the real Splink."""

from __future__ import annotations

from dataclasses import replace

import polars as pl

from benchmarks.labelled_rows import labelled_records
from headrace.build.entities.alike import comparable
from headrace.build.entities.names import NODE
from headrace.build.entities.scoring import number_records
from headrace.build.entities.training import choose_weights, train_weights
from headrace.build.entities.weights import can_train_now, fixed_weights, stored_weights
from headrace.iceberg.ledgers.build import BuildLedger
from headrace.spec.model.fuzzy import Block, Comparison, Fuzzy

FUZZY = Fuzzy(
    (
        Comparison("first_name", "name"),
        Comparison("last_name", "name"),
        Comparison("born_on", "date"),
        Comparison("postcode", "exact"),
        Comparison("occupation", "exact"),
    ),
    (Block(("first_name", "last_name")), Block(("born_on",)), Block(("last_name", "postcode"))),
    train=True,
)


def true_m(records: pl.DataFrame, column: str) -> float:
    """Return how often two records of one person agree on a column, in the spelling in which it is compared."""
    known = pl.DataFrame({"person": records["person"], "value": comparable(records, FUZZY)[f"c{FUZZY.columns.index(column)}"]})
    known = known.drop_nulls().with_row_index("number")
    pairs = known.join(known, on="person").filter(pl.col("number") < pl.col("number_right"))
    return float((pairs["value"] == pairs["value_right"]).mean())  # type: ignore[arg-type]


def test_trained_weights_are_near_the_truth_and_the_same_every_time() -> None:
    records = labelled_records(3_000, seed=3).sort("record")
    stored = choose_weights(records, FUZZY, keys=["record"], version=4)
    shuffled = records.sample(fraction=1.0, shuffle=True, seed=1)
    assert choose_weights(shuffled, FUZZY, keys=["record"], version=4) == stored, "whatever the order of the records"
    assert (stored.version, stored.records, set(stored.columns)) == (
        4,
        3_000,
        {comparison.column for comparison in FUZZY.compare},
    )
    people = records.group_by("person").len()["len"].cast(pl.Int64)
    chance = (people * (people - 1)).sum() / (3_000 * 2_999)
    assert chance / 2 < stored.chance < chance * 2
    weights = stored_weights(FUZZY, stored)
    for column in weights.levels:
        added = weights.added(column)
        assert list(added) == sorted(added, reverse=True), column
        assert added[0] > 0 > added[-1]
    wrong = {
        comparison.column: abs(weights.levels[comparison.column][0].m - true_m(records, comparison.column))
        for comparison in FUZZY.compare
    }
    fixed = {name: abs(levels[0].m - true_m(records, name)) for name, levels in fixed_weights(FUZZY).levels.items()}
    assert max(wrong.values()) < 0.1, wrong
    assert max(fixed.values()) > 0.3, "fixed weights don't know these records"
    ledger = BuildLedger(build_id=4, weights=stored, largest_entity=9)
    assert BuildLedger.from_json(ledger.to_json()) == replace(ledger, reads=BuildLedger.from_json(ledger.to_json()).reads)


def test_uninformative_records_keep_the_fixed_weights() -> None:
    records = labelled_records(1_000, seed=5)
    same = records.with_columns(
        *(pl.lit("same").alias(name) for name in ("first_name", "last_name", "occupation")),
        pl.int_range(pl.len()).cast(pl.String).alias("postcode"),
        pl.lit(None, pl.Date).alias("born_on"),
    )
    for records_of_two in (records.head(999), same):
        values = comparable(records_of_two, FUZZY).with_row_index(NODE)
        assert train_weights(number_records(values), FUZZY) == (fixed_weights(FUZZY), ())


def test_table_that_was_too_small_is_trained_when_it_has_grown() -> None:
    stored = fixed_weights(FUZZY).store(version=1, records=700, trained=())
    assert [can_train_now(FUZZY, stored, records=count) for count in (900, 1_399, 1_400)] == [False, False, True]
    assert not can_train_now(FUZZY, replace(stored, columns=("born_on",)), records=10_000)
    assert not can_train_now(replace(FUZZY, train=False), stored, records=10_000)
    assert not can_train_now(FUZZY, None, records=10_000)
