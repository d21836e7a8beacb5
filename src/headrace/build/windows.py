"""Rolling windows: find the rows that a change touches if every row depends on a preceding time window."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import reduce
from typing import TYPE_CHECKING

import polars as pl
import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.window import Window as Over

from headrace.build.joins import broadcast_few
from headrace.build.rows import ChangeSet, Rows, SparkRows
from headrace.iceberg.rows.row_store import Ranges
from headrace.spark.columns import named
from headrace.spark.prepared_queries import derive
from headrace.spark.times import TIMESTAMP
from headrace.spec.model.layers import Window

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_AT = "__at"
_PARTS = "__part_{}"
_CHANGE = "__change"
_NEAR = "__near"

_MOST_RANGES = 32
"""Up to this many time ranges are read separately; more are read as one."""


@dataclass(frozen=True)
class Affected:
    """The rows that a change affects. `context` has the rows whose window a change touches, and all rows in their windows."""

    context: Rows
    moments: DataFrame
    window: Window

    def choose(self, rows: DataFrame) -> DataFrame:
        """Return the rows whose window contains a change. The windows of other context rows are incomplete."""
        return derive(rows, ("choose", self.window), lambda rows, moments: _choose(rows, moments, self.window), self.moments)


def _choose(rows: DataFrame, changed: DataFrame, window: Window) -> DataFrame:
    names, order = window.partition_by, named(window.order_by)
    moments = changed.select(
        *(F.col(_PARTS.format(index)).alias(name) for index, name in enumerate(names)),
        F.col(_AT).alias(window.order_by),
        F.lit(True).alias(_CHANGE),
    )
    both = rows.withColumn(_CHANGE, F.lit(False)).unionByName(moments, allowMissingColumns=True)
    # Comparing each row with the last change before it takes one pass, however many changes a partition has.
    up_to = Over.partitionBy(*(named(name) for name in names), order.isNull()).orderBy(order)
    up_to = up_to.rangeBetween(Over.unboundedPreceding, Over.currentRow)
    last = F.max(F.when(F.col(_CHANGE), order)).over(up_to)
    near = F.when(order.isNull(), F.max(_CHANGE).over(up_to)).otherwise(_later(last, window) >= order)
    return both.withColumn(_NEAR, near).where(F.col(_NEAR) & ~F.col(_CHANGE)).drop(_NEAR, _CHANGE)


def touched_windows(rows: DataFrame, changes: ChangeSet, window: Window) -> Affected:
    """Return the rows that are needed to recompute every row whose window a change touches.

    A change at time t touches the rows of its partition from t to t + range, whose windows start at t - range.
    """
    moments = moments_of(changes, window).frame.distinct().persist()
    partition = F.xxhash64(*(F.col(_PARTS.format(index)) for index in range(len(window.partition_by))))
    bounds = moments.agg(
        F.min(_AT).alias("first"), F.max(_AT).alias("last"), F.approx_count_distinct(partition).alias("partitions")
    )
    first, last, partitions = bounds.select(
        F.date_format(_earlier(F.col("first"), window), TIMESTAMP),
        F.date_format(_later(F.col("last"), window), TIMESTAMP),
        "partitions",
    ).first() or (None, None, 0)
    order = named(window.order_by)
    near = rows
    if first is not None:
        between = (order >= F.lit(first).cast("timestamp")) & (order <= F.lit(last).cast("timestamp"))
        near = rows.where(between | order.isNull())
    parts = moments.drop(_AT).distinct()
    context = near.join(broadcast_few(parts, partitions), _same_partition(near, parts, window.partition_by), "left_semi")
    return Affected(SparkRows(context), moments, window)


def window_ranges(moments: pa.Table, window: Window) -> Ranges | None:
    """Return the time ranges of the rows whose window a change touches, and of the rows in their windows.

    Changes that are close to each other share a range. Return None if no change has a time.
    """
    times = pl.DataFrame(moments.select([window.order_by]))[window.order_by].drop_nulls().unique().sort().to_list()
    if not times:
        return None
    reach = timedelta(seconds=window.seconds)
    ranges: list[tuple[object, object]] = []
    first = last = times[0]
    for time in times[1:]:
        if time - last > 2 * reach:
            ranges.append((first - reach, last + reach))
            first = time
        last = time
    ranges.append((first - reach, last + reach))
    if len(ranges) > _MOST_RANGES:
        ranges = [(ranges[0][0], ranges[-1][1])]
    return {window.order_by: ranges}


def moments_of(changes: ChangeSet, window: Window) -> Rows:
    """Return the partition and the time of every row that entered or left, with internal column names."""
    parts = {_PARTS.format(index): name for index, name in enumerate(window.partition_by)}
    return changes.both({**parts, _AT: window.order_by})


def _same_partition(rows: DataFrame, moments: DataFrame, names: Sequence[str]) -> Column:
    parts = [rows[f"`{name}`"].eqNullSafe(moments[_PARTS.format(index)]) for index, name in enumerate(names)]
    return reduce(lambda a, b: a & b, parts)


def _later(moment: Column, window: Window) -> Column:
    return moment + F.make_dt_interval(secs=F.lit(window.seconds))


def _earlier(moment: Column, window: Window) -> Column:
    return moment - F.make_dt_interval(secs=F.lit(window.seconds))
