"""Draw the training sample for a large table's weights on Spark; it equals the sample drawn in one process."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import IntegerType, StructField, StructType

from headrace.build.entities.alike import block_columns
from headrace.build.entities.distributed.batches import on_batches
from headrace.build.entities.distributed.pairs import count_pairs
from headrace.build.entities.names import NODE, OWN_ID
from headrace.build.entities.training import halvings_of, is_too_large, weights_of_sample
from headrace.iceberg.ledgers.build import TrainedWeights
from headrace.spark.arrow import to_arrow
from headrace.spec.model.fuzzy import Fuzzy

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_HALVINGS = "__halvings"


def choose_weights_on_spark(values: DataFrame, fuzzy: Fuzzy, *, version: int) -> TrainedWeights:
    """Train a table's weights on a sample of its records, for the ledger entry of a refresh.

    `values` is the result of `comparable_values`, with OWN_ID. Only the sample is collected by the driver, which trains.
    """
    seed = fuzzy.seed

    def make(batch: pl.DataFrame) -> pl.DataFrame:
        return pl.DataFrame({_HALVINGS: pl.Series([halvings_of(own, seed) for own in batch[OWN_ID]], dtype=pl.Int32)})

    drawn = on_batches(make, StructType([StructField(_HALVINGS, IntegerType())]))
    sampled = values.withColumn(_HALVINGS, drawn(F.struct(OWN_ID))[_HALVINGS])
    records, halved, sample = values.count(), 0, values
    while is_too_large(sample.count() if halved else records, _count_all(sample, fuzzy)):
        halved += 1
        sample = sampled.where(F.col(_HALVINGS) >= halved)
    columns = [f"c{place}" for place in range(len(fuzzy.columns))]
    collected = pl.DataFrame(to_arrow(sample.select(NODE, *columns))).sort(NODE)
    return weights_of_sample(collected, fuzzy, records=records, version=version)


def _count_all(values: DataFrame, fuzzy: Fuzzy) -> int:
    return sum(count_pairs(values, block_columns(block, fuzzy)) for block in fuzzy.block_on)
