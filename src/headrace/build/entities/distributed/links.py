"""Link records that share a value on Spark: edges, and values that too many records share.

Pure: frames in, frames out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812

from headrace.build.entities.distributed.components import CHILD, PARENT
from headrace.build.entities.names import NODE
from headrace.spark.columns import named
from headrace.spec.model.matching import UNUSED, Match

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_MATCH, _VALUE, _FIRST, _SHARING, _IS_OVER = "__match", "__value", "__first", "__sharing", "__is_over"


def link_records(records: DataFrame, matches: Sequence[Match]) -> DataFrame:
    """Return, for each record and match with a shared value, the first record with the value and whether it is over the limit.

    A value is over the limit if more than `max_records` records share it. Unique values and nulls are omitted.
    """
    values = F.array(
        *(F.struct(F.lit(place).alias(_MATCH), named(match.column).alias(_VALUE)) for place, match in enumerate(matches))
    )
    exploded = records.select(NODE, F.explode(values).alias("match")).select(NODE, "match.*").where(F.col(_VALUE).isNotNull())
    sharing = Window.partitionBy(_MATCH, _VALUE)
    counted = exploded.select(
        NODE, _MATCH, F.min(NODE).over(sharing).alias(_FIRST), F.count(F.lit(1)).over(sharing).alias(_SHARING)
    )
    limits = F.array(*(F.lit(match.max_records) for match in matches))
    is_over = F.col(_SHARING) > limits[F.col(_MATCH)]
    return counted.where(F.col(_SHARING) > 1).select(NODE, _MATCH, _FIRST, is_over.alias(_IS_OVER))


def edges_of(links: DataFrame) -> DataFrame:
    """Return pairs of records that share a value: each record with the first one, to keep their number low."""
    used = links.where(~F.col(_IS_OVER) & (F.col(NODE) != F.col(_FIRST)))
    return used.select(F.col(NODE).alias(CHILD), F.col(_FIRST).alias(PARENT))


def unused_of(links: DataFrame, matches: Sequence[Match]) -> DataFrame:
    """Return, for each record with a value over the limit, its match columns with such a value."""
    flags = (F.max(F.col(_MATCH) == place).alias(f"__over_{place}") for place in range(len(matches)))
    over = links.where(_IS_OVER).groupBy(NODE).agg(*flags)
    names = F.array(*(F.when(F.col(f"__over_{place}"), F.lit(match.column)) for place, match in enumerate(matches)))
    return over.select(NODE, F.array_compact(names).alias(UNUSED))
