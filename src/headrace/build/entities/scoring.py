"""Match weights of pairs of records: Splink tells the levels, in this process or on Spark, and here they are added up.

Both backends give the same levels, and the sum is made in one place, so it does not matter which one compared the records.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import polars as pl

from headrace.build.entities.alike import LEFT, PAIRS, RIGHT, WEIGHT, Score, count_pairs
from headrace.build.entities.names import NODE
from headrace.build.entities.splink_duckdb import can_compare, compare_on_duckdb
from headrace.build.entities.splink_model import ID, ID_LEFT, ID_RIGHT, gamma
from headrace.build.entities.splink_spark import compare_on_spark
from headrace.build.entities.weights import Weights, fixed_weights, stored_weights
from headrace.iceberg.ledgers.build import TrainedWeights
from headrace.spec.model.fuzzy import Fuzzy
from headrace.spec.model.layers import LayerTable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MOST_PAIRS_IN_PROCESS = 20_000_000
"""How many pairs are compared in this process; more are compared on Spark, whose executors may be many.

DuckDB needs 16 bytes for a pair before it is weighed, so these are a third of its memory.
"""
DIGITS = 9
"""How many decimals of a weight count: far fewer than a sum of doubles has, far more than anybody sets as a threshold."""


def splink_score(table: LayerTable, *, spark: SparkSession, stored: TrainedWeights | None = None) -> Score | None:
    """Return how the table's pairs are weighed, or None where it has no `fuzzy`; without Splink it is a SpecError.

    `stored` are the weights of a table that trains them.
    """
    fuzzy = table.fuzzy
    if fuzzy is None:
        return None
    table.check_extras()
    used = stored_weights(fuzzy, stored) if stored else fixed_weights(fuzzy)

    def score(records: pl.DataFrame) -> pl.DataFrame:
        numbered = number_records(records)
        if count_pairs(records, fuzzy) <= MOST_PAIRS_IN_PROCESS and can_compare(records, fuzzy, used):
            pairs = compare_on_duckdb(numbered, fuzzy, used)
        else:
            pairs = compare_on_spark(numbered, fuzzy, used, spark=spark)
        return weigh(records[NODE], pairs, fuzzy, used)

    return score


def number_records(records: pl.DataFrame) -> pl.DataFrame:
    """Return records as a backend takes them: their place instead of their node."""
    return records.drop(NODE).with_row_index(ID).with_columns(pl.col(ID).cast(pl.Int64))


def weigh(nodes: pl.Series, pairs: pl.DataFrame, fuzzy: Fuzzy, weights: Weights) -> pl.DataFrame:
    """Return the pairs whose levels add up to the threshold or more."""
    weight = add_weights(*level_weights(fuzzy, weights))
    weighed = pairs.select(ID_LEFT, ID_RIGHT, weight.alias(WEIGHT)).filter(pl.col(WEIGHT) >= fuzzy.at_least)
    return pl.DataFrame(
        {
            LEFT: nodes.gather(weighed[ID_LEFT]),
            RIGHT: nodes.gather(weighed[ID_RIGHT]),
            WEIGHT: weighed[WEIGHT],
        },
        schema=PAIRS,
    )


def level_weights(fuzzy: Fuzzy, weights: Weights) -> tuple[float, dict[str, dict[int, float]]]:
    """Return the weight that a pair starts with, and what each level adds, by the column in which a backend tells it."""
    return weights.start, {gamma(each.column, fuzzy): weights.by_gamma(each.column) for each in fuzzy.compare}


def add_weights(start: float, added: Mapping[str, Mapping[int, float]]) -> pl.Expr:
    """Return the weight of a pair: what its levels add up to."""
    levels = (pl.col(name).replace_strict(by_level, return_dtype=pl.Float64) for name, by_level in added.items())
    return pl.sum_horizontal(pl.lit(start), *levels).round(DIGITS)
