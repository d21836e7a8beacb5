"""Which of several rows counts: the newest of a key, or all of them as a history. Pure: DataFrame in, DataFrame out.

Rows carry `_tombstone`: such a row says that its key is gone. Whatever the order in which rows arrive and however often, the
outcome is the same, because rows are compared by `sequence_by` and, where that is equal, by all their columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.window import Window

from headrace.layers.removed import DELETED
from headrace.layers.types import has_map
from headrace.spec.layers import HISTORY_COLUMNS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, GroupedData

NOT_UNIQUE = "headrace: several rows have the key "
"""How the error begins that Spark raises where `one_of_keys` finds more than one."""


def newest_of_keys(rows: DataFrame, *, keys: Sequence[str], sequence_by: str) -> DataFrame:
    """Gives back the newest row of each key.

    A deletion wins over another row of the same sequence; a sequence that is null is older than any other.
    """
    order = _order(rows, first=[sequence_by, DELETED])
    return _by_key(rows, keys).agg(F.max_by(_all_of(rows), order).alias("row")).select("row.*")


def one_of_keys(rows: DataFrame, *, keys: Sequence[str]) -> DataFrame:
    """Gives back the one row that each key has; computing it fails where a key has several."""
    shown = F.to_json(
        F.struct(*(F.col(f"__key_{index}").alias(key) for index, key in enumerate(keys))), {"ignoreNullFields": "false"}
    )
    refuse = F.raise_error(F.concat(F.lit(NOT_UNIQUE), shown)).cast("boolean")
    counted = _by_key(rows, keys).agg(F.first(_all_of(rows)).alias("row"), F.count(F.lit(1)).alias("count"))
    return counted.where(F.when(F.col("count") == 1, F.lit(True)).otherwise(refuse)).select("row.*")


def history_of_keys(rows: DataFrame, *, keys: Sequence[str], sequence_by: str, untracked: Sequence[str] = ()) -> DataFrame:
    """Gives back the versions of every key: each row with `valid_from`, `valid_to` and `is_current`.

    A version ends where the next begins. A row that differs from the one before it in untracked columns alone begins none. A
    deletion ends a version and begins none, but stays as a row with `_tombstone`, so that the caller can keep it.
    """
    distinct = newest_of_keys(rows, keys=[*keys, sequence_by], sequence_by=sequence_by)
    window = Window.partitionBy(*(F.col(f"`{key}`") for key in keys)).orderBy(F.col(f"`{sequence_by}`").asc_nulls_first())
    if untracked:
        left_out = {*untracked, sequence_by}
        tracked = F.struct(
            *(comparable(distinct, name) for name in distinct.columns if name not in left_out and name not in keys)
        )
        distinct = distinct.withColumn("__same", tracked.eqNullSafe(F.lag(tracked).over(window)))
        distinct = distinct.where(~F.col("__same") | F.col(DELETED)).drop("__same")
    start, end, current = HISTORY_COLUMNS
    following = F.lead(F.col(f"`{sequence_by}`")).over(window)
    return (
        distinct.withColumn(start, F.col(f"`{sequence_by}`"))
        .withColumn(end, following)
        .withColumn(current, F.lead(F.lit(1)).over(window).isNull() & ~F.col(DELETED))
    )


def comparable(rows: DataFrame, name: str) -> Column:
    """Gives back a column as something that Spark can compare: a map as its JSON."""
    column = F.col(f"`{name}`")
    return F.to_json(column) if has_map(rows.schema[name].dataType) else column


def _by_key(rows: DataFrame, keys: Sequence[str]) -> GroupedData:
    return rows.groupBy(*(F.col(f"`{key}`").alias(f"__key_{index}") for index, key in enumerate(keys)))


def _all_of(rows: DataFrame) -> Column:
    return F.struct(*(F.col(f"`{name}`") for name in rows.columns))


def _order(rows: DataFrame, *, first: Sequence[str]) -> Column:
    rest = [name for name in rows.columns if name not in first]
    return F.struct(*(comparable(rows, name).alias(f"_{index}") for index, name in enumerate((*first, *rest))))
