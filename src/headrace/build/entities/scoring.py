"""Match weights of pairs of records: Splink determines the levels, in this process or on Spark, and this module sums them.

Both backends return the same levels, and the sum is computed here for both, so the result does not depend on the backend.
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
"""The maximum number of pairs compared in this process; Spark compares more, on its executors.

DuckDB needs 16 bytes for a pair before it is weighed, so this is a third of its memory.
"""
DIGITS = 9
"""The number of decimals of a weight: far fewer than the precision of a sum of doubles, far more than a threshold needs."""


def splink_score(table: LayerTable, *, spark: SparkSession, stored: TrainedWeights | None = None) -> Score | None:
    """Return the function that weighs the table's pairs, or None without `fuzzy`. Raises SpecError if Splink is missing.

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
    """Return records for a backend, with their position instead of NODE."""
    return records.drop(NODE).with_row_index(ID).with_columns(pl.col(ID).cast(pl.Int64))


def weigh(nodes: pl.Series, pairs: pl.DataFrame, fuzzy: Fuzzy, weights: Weights) -> pl.DataFrame:
    """Return the pairs whose weight reaches the threshold."""
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
    """Return the start weight of a pair, and the weight of each level by the backend's level column."""
    columns = [comparison.column for comparison in fuzzy.compare]
    return weights.start, {gamma(column, fuzzy): weights.by_gamma(column) for column in columns}


def add_weights(start: float, added: Mapping[str, Mapping[int, float]]) -> pl.Expr:
    """Return the expression for a pair's weight: the sum of its levels."""
    levels = (pl.col(name).replace_strict(by_level, return_dtype=pl.Float64) for name, by_level in added.items())
    return pl.sum_horizontal(pl.lit(start), *levels).round(DIGITS)
