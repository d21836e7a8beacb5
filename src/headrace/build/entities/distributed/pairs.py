"""Fuzzy matching pairs on Spark: CHILD, the greater node, PARENT and WEIGHT."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

import polars as pl
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import DecimalType, DoubleType, StringType, StructField, StructType

from headrace.build.entities.alike import (
    WEIGHT,
    as_confidence,
    below_exact,
    block_columns,
    check_pairs,
    comparable,
)
from headrace.build.entities.distributed.batches import on_batches
from headrace.build.entities.distributed.components import CHILD, PARENT
from headrace.build.entities.names import NODE, OWN_ID
from headrace.build.entities.scoring import add_weights, level_weights
from headrace.build.entities.splink_model import ID, ID_LEFT, ID_RIGHT, gamma
from headrace.build.entities.splink_spark import predict_on_spark
from headrace.build.entities.weights import Weights
from headrace.spark.columns import named
from headrace.spec.model.fuzzy import Fuzzy
from headrace.spec.model.matching import CONFIDENCE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from headrace.spark.checkpoints import Checkpoints

_VALUES, _SHARING = "__values", "__sharing"


def comparable_values(records: DataFrame, fuzzy: Fuzzy) -> DataFrame:
    """Return NODE, OWN_ID and the compared columns as normalised text, named by their position: `c0`, `c1`, …"""
    columns = [f"c{place}" for place in range(len(fuzzy.columns))]
    return with_comparable(records, fuzzy).select(NODE, OWN_ID, *columns)


def with_comparable(records: DataFrame, fuzzy: Fuzzy) -> DataFrame:
    """Return records with the columns `c0`, `c1`, …, computed by `alike.comparable` on the executors."""
    columns = [f"c{place}" for place in range(len(fuzzy.columns))]
    kind = StructType([StructField(name, StringType()) for name in columns])
    values = on_batches(lambda batch: comparable(batch, fuzzy), kind)(F.struct(*map(named, fuzzy.columns)))
    records = records.withColumn(_VALUES, values)
    return records.withColumns({name: F.col(_VALUES)[name] for name in columns}).drop(_VALUES)


def block_sizes(values: DataFrame, names: list[str]) -> DataFrame:
    """Return the values of a block that several records share, with their number of records."""
    whole = reduce(lambda a, b: a & b, (F.col(name).isNotNull() for name in names))
    sizes = values.where(whole).groupBy(*names).agg(F.count(F.lit(1)).alias(_SHARING))
    return sizes.where(F.col(_SHARING) > 1)


def count_pairs(values: DataFrame, names: list[str]) -> int:
    """Return the number of candidate pairs in a block."""
    pairs = F.col(_SHARING) * (F.col(_SHARING) - 1) / 2
    row = block_sizes(values, names).agg(F.sum(pairs.cast("decimal(38, 0)"))).first()
    return int(row[0] or 0) if row else 0


def find_pairs(
    values: DataFrame, fuzzy: Fuzzy, weights: Weights, *, spark: SparkSession, checkpoints: Checkpoints
) -> DataFrame | None:
    """Return the pairs that reach the required weight, or None if no two records share a block.

    `values` is the checkpointed result of `comparable_values`. Splink compares them on Spark, whatever their number. The record
    with the lesser NODE, and so the lesser key, is on the left: a similarity may depend on the order.
    """
    sharing = []
    for block in fuzzy.block_on:
        names = block_columns(block, fuzzy)
        check_pairs(count_pairs(values, names), block)
        sharing.append(values.join(block_sizes(values, names), names, "left_semi").select(NODE))
    nodes = reduce(lambda a, b: a.unionByName(b), sharing).distinct()
    candidates = checkpoints.keep(values.join(nodes, NODE, "left_semi").drop(OWN_ID).withColumnRenamed(NODE, ID))
    if candidates.isEmpty():
        return None
    start, added = level_weights(fuzzy, weights)
    kind = StructType([StructField(WEIGHT, DoubleType())])
    weigh = on_batches(lambda batch: batch.select(add_weights(start, added).alias(WEIGHT)), kind)
    levels = F.struct(*(gamma(comparison.column, fuzzy) for comparison in fuzzy.compare))
    with predict_on_spark(candidates, fuzzy, weights, spark=spark) as compared:
        weighed = compared.select(
            F.col(ID_RIGHT).alias(CHILD), F.col(ID_LEFT).alias(PARENT), weigh(levels)[WEIGHT].alias(WEIGHT)
        )
        return checkpoints.keep(weighed.where(F.col(WEIGHT) >= fuzzy.at_least))


def confidence_of(pairs: DataFrame, *, exact: DataFrame) -> DataFrame:
    """Return the confidence of the records that have a fuzzy pair and share no value."""
    both = pairs.select(F.explode(F.array(CHILD, PARENT)).alias(NODE), WEIGHT)
    sure = exact.select(F.explode(F.array(CHILD, PARENT)).alias(NODE))
    best = both.join(sure, NODE, "left_anti").groupBy(NODE).agg(F.max(WEIGHT).alias(WEIGHT))
    kind = StructType([StructField(CONFIDENCE, DecimalType(5, 2))])
    rounded = on_batches(lambda batch: pl.DataFrame({CONFIDENCE: as_confidence(below_exact(batch[WEIGHT]))}), kind)
    return best.select(NODE, rounded(F.struct(WEIGHT))[CONFIDENCE].alias(CONFIDENCE))
