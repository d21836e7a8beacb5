"""Which of several rows counts: the newest of a key, or all of them as a history. Pure: DataFrame in, DataFrame out.

Rows carry `_tombstone`: such a row says that its key is gone. Whatever the order in which rows arrive and however often, the
outcome is the same, because rows are compared by `sequence_by` and, where that is equal, by all their columns.
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
"""A column that has what `event_order` gives."""

NOT_UNIQUE = "headrace: several rows have the key "
"""How the error begins that Spark raises where `one_of_keys` finds more than one."""

_RANK, _COUNT = "__rank", "__count"


def newest_of_keys(rows: DataFrame, *, keys: Sequence[str], sequence_by: Sequence[str], order: str | None = None) -> DataFrame:
    """Return the newest row of each key.

    A deletion wins over another row of the same sequence; a sequence that is null is older than any other. `order` is the
    column that says which is newer, where it was decided before.
    """
    # A window sorts the rows once. An aggregate of whole rows (max_by) would sort them twice, each with a copy of itself.
    columns = [F.col(order)] if order else _order_columns(rows, sequence_by=sequence_by)
    newest_first = Window.partitionBy(*map(named, keys)).orderBy(*(column.desc_nulls_last() for column in columns))
    return rows.withColumn(_RANK, F.row_number().over(newest_first)).where(F.col(_RANK) == 1).drop(_RANK)


def event_order(rows: DataFrame, *, sequence_by: Sequence[str]) -> Column:
    """Return what puts rows of a key in order: their sequence, deletions last, and then all columns."""
    columns = _order_columns(rows, sequence_by=sequence_by)
    return F.struct(*(column.alias(f"_{index}") for index, column in enumerate(columns)))


def _order_columns(rows: DataFrame, *, sequence_by: Sequence[str]) -> list[Column]:
    first = [*sequence_by, DELETED]
    rest = [name for name in rows.columns if name not in first]
    return [comparable(rows, name) for name in (*first, *rest)]


def one_of_keys(rows: DataFrame, *, keys: Sequence[str]) -> DataFrame:
    """Return the one row that each key has; computing it fails where a key has several."""
    refuse = F.raise_error(F.concat(F.lit(NOT_UNIQUE), key_as_json(keys))).cast("boolean")
    by_key = Window.partitionBy(*map(named, keys))
    counted = rows.withColumn(_COUNT, F.count(F.lit(1)).over(by_key))
    return counted.where(F.when(F.col(_COUNT) == 1, F.lit(True)).otherwise(refuse)).drop(_COUNT)


def key_as_json(keys: Sequence[str]) -> Column:
    """Return a row's key as errors show it."""
    return F.to_json(F.struct(*(named(key).alias(key) for key in keys)), {"ignoreNullFields": "false"})


def history_of_keys(rows: DataFrame, *, table: LayerTable) -> DataFrame:
    """Return the versions of every key: each row with `valid_from`, `valid_to` and `is_current`.

    Rows are of one sequence each. A version ends where the next begins, or with the truncate after it. A row that differs from
    the one before it in untracked columns alone begins none. A deletion ends a version and begins none, but stays as a row with
    `_tombstone`, so that the caller can keep it.
    """
    epoch = F.col(EPOCH)
    window = Window.partitionBy(*(named(key) for key in table.keys), epoch["at"]).orderBy(
        *(named(name).asc_nulls_first() for name in table.sequence_by)
    )
    if table.untracked:
        own = {*table.added_columns, EPOCH, ORDER}
        left_out = {*table.keys, *table.sequence_by, table.versioned_by, *table.untracked, *own}
        tracked = F.struct(*(comparable(rows, name) for name in rows.columns if name not in left_out))
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
    """Return a column as something that Spark can compare: a map as its JSON."""
    column = named(name)
    return F.to_json(column) if has_map(rows.schema[name].dataType) else column
