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
from headrace.spec.layers import CARRIED, HISTORY_COLUMNS, LayerTable
from headrace.tables.spark_columns import named

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, GroupedData

ORDER = "__order"
"""A column that has what `event_order` gives."""

NOT_UNIQUE = "headrace: several rows have the key "
"""How the error begins that Spark raises where `one_of_keys` finds more than one."""


def newest_of_keys(rows: DataFrame, *, keys: Sequence[str], sequence_by: Sequence[str], order: str | None = None) -> DataFrame:
    """Gives back the newest row of each key.

    A deletion wins over another row of the same sequence; a sequence that is null is older than any other. `order` is the
    column that says which is newer, where it was decided before.
    """
    newest = F.col(order) if order else event_order(rows, sequence_by=sequence_by)
    return _by_key(rows, keys).agg(F.max_by(_all_of(rows), newest).alias("row")).select("row.*")


def event_order(rows: DataFrame, *, sequence_by: Sequence[str]) -> Column:
    """Gives back what puts rows of a key in order: their sequence, deletions last, and then all columns."""
    first = [*sequence_by, DELETED]
    rest = [name for name in rows.columns if name not in first]
    return F.struct(*(comparable(rows, name).alias(f"_{index}") for index, name in enumerate((*first, *rest))))


def one_of_keys(rows: DataFrame, *, keys: Sequence[str]) -> DataFrame:
    """Gives back the one row that each key has; computing it fails where a key has several."""
    shown = F.to_json(
        F.struct(*(F.col(f"__key_{index}").alias(key) for index, key in enumerate(keys))), {"ignoreNullFields": "false"}
    )
    refuse = F.raise_error(F.concat(F.lit(NOT_UNIQUE), shown)).cast("boolean")
    counted = _by_key(rows, keys).agg(F.first(_all_of(rows)).alias("row"), F.count(F.lit(1)).alias("count"))
    return counted.where(F.when(F.col("count") == 1, F.lit(True)).otherwise(refuse)).select("row.*")


def history_of_keys(rows: DataFrame, *, table: LayerTable) -> DataFrame:
    """Gives back the versions of every key: each row with `valid_from`, `valid_to` and `is_current`.

    Rows are of one sequence each. A version ends where the next begins, or with the truncate after it. A row that differs from
    the one before it in untracked columns alone begins none. A deletion ends a version and begins none, but stays as a row with
    `_tombstone`, so that the caller can keep it.
    """
    epoch = F.col(EPOCH)
    window = Window.partitionBy(*(named(key) for key in table.keys), epoch["at"]).orderBy(
        *(named(name).asc_nulls_first() for name in table.sequence_by)
    )
    if table.untracked:
        left_out = {*table.keys, *table.sequence_by, table.versioned_by, *table.untracked, EPOCH, ORDER, CARRIED}
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
    """Gives back a column as something that Spark can compare: a map as its JSON."""
    column = named(name)
    return F.to_json(column) if has_map(rows.schema[name].dataType) else column


def _by_key(rows: DataFrame, keys: Sequence[str]) -> GroupedData:
    return rows.groupBy(*(named(key).alias(f"__key_{index}") for index, key in enumerate(keys)))


def _all_of(rows: DataFrame) -> Column:
    return F.struct(*(named(name) for name in rows.columns))
