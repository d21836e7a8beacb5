"""Reduce the rows of each key to the newest one or to a history. Pure: DataFrame in, DataFrame out.

A row with `_tombstone` deletes its key. The result does not depend on the order of arrival or on duplicates, because rows are
compared by `sequence_by` and, for equal sequences, by all their columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.window import Window

from headrace.build.events import EPOCH
from headrace.build.removed import DELETED
from headrace.build.types import has_map
from headrace.spark.columns import named
from headrace.spec.model.layers import HISTORY_COLUMNS, LayerTable

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

ORDER = "__order"
"""The column for the result of `event_order`."""

NOT_UNIQUE = "headrace: several rows have the key "
"""The prefix of Spark's error if `one_of_keys` finds several rows."""

_RANK, _COUNT = "__rank", "__count"


def newest_of_keys(rows: DataFrame, *, keys: Sequence[str], sequence_by: Sequence[str], order: str | None = None) -> DataFrame:
    """Return the newest row of each key.

    A delete wins over another row of the same sequence; a null sequence is older than any other. `order` is a column with the
    order, if it was computed before.
    """
    # A window sorts the rows once. An aggregate of whole rows (max_by) would sort them twice, with a copy of each row.
    columns = [F.col(order)] if order else _order_columns(rows, sequence_by=sequence_by)
    newest_first = Window.partitionBy(*map(named, keys)).orderBy(*(column.desc_nulls_last() for column in columns))
    return rows.withColumn(_RANK, F.row_number().over(newest_first)).where(F.col(_RANK) == 1).drop(_RANK)


def event_order(rows: DataFrame, *, sequence_by: Sequence[str]) -> Column:
    """Return the sort key of a key's rows: their sequence, deletes last, and then all columns."""
    columns = _order_columns(rows, sequence_by=sequence_by)
    return F.struct(*(column.alias(f"_{index}") for index, column in enumerate(columns)))


def _order_columns(rows: DataFrame, *, sequence_by: Sequence[str]) -> list[Column]:
    first = [*sequence_by, DELETED]
    rest = [name for name in rows.columns if name not in first]
    return [comparable(rows, name) for name in (*first, *rest)]


def one_of_keys(rows: DataFrame, *, keys: Sequence[str]) -> DataFrame:
    """Return the only row of each key. Computing the result fails if a key has several rows."""
    refuse = F.raise_error(F.concat(F.lit(NOT_UNIQUE), key_as_json(keys))).cast("boolean")
    by_key = Window.partitionBy(*map(named, keys))
    counted = rows.withColumn(_COUNT, F.count(F.lit(1)).over(by_key))
    return counted.where(F.when(F.col(_COUNT) == 1, F.lit(True)).otherwise(refuse)).drop(_COUNT)


def key_as_json(keys: Sequence[str]) -> Column:
    """Return a row's key in the form that errors show."""
    return F.to_json(F.struct(*(named(key).alias(key) for key in keys)), {"ignoreNullFields": "false"})


def history_of_keys(rows: DataFrame, *, table: LayerTable) -> DataFrame:
    """Return the versions of every key: each row with `valid_from`, `valid_to` and `is_current`.

    Sequences are unique for each key. A version ends when the next begins, or with the next truncate. A row that differs from
    the previous one only in untracked columns starts no version. A delete ends a version, and stays as a row with `_tombstone`
    for the caller to record.
    """
    epoch = F.col(EPOCH)
    window = Window.partitionBy(*(named(key) for key in table.keys), epoch["at"]).orderBy(
        *(named(name).asc_nulls_first() for name in table.sequence_by)
    )
    if table.untracked:
        own = {*table.added_columns, EPOCH, ORDER}
        excluded = {*table.keys, *table.sequence_by, table.versioned_by, *table.untracked, *own}
        tracked = F.struct(*(comparable(rows, name) for name in rows.columns if name not in excluded))
        rows = rows.withColumn("__same", tracked.eqNullSafe(F.lag(tracked).over(window)))
        rows = rows.where(~F.col("__same") | F.col(DELETED)).drop("__same")
    start, end, current = HISTORY_COLUMNS
    time, is_last = named(table.versioned_by), F.lead(F.lit(1)).over(window).isNull()
    return rows.withColumns(
        {
            start: time,
            end: F.when(is_last, epoch["time"]).otherwise(F.lead(time).over(window)),
            current: is_last & epoch.isNull() & ~F.col(DELETED),
        }
    )


def comparable(rows: DataFrame, name: str) -> Column:
    """Return a column in a form that Spark can compare: JSON for types with a map."""
    column = named(name)
    return F.to_json(column) if has_map(rows.schema[name].dataType) else column
