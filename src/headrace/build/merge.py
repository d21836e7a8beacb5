"""Compare the old and the desired rows of touched keys, and return the changes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812

from headrace.build.joins import equal_columns
from headrace.build.removed import DELETED
from headrace.build.versions import comparable
from headrace.iceberg.files.spark_files import FILE, POSITION
from headrace.spark.columns import named

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PLACE = ("file", "position")
"""A row's place: its file and its position in the file."""


def compare(desired: DataFrame, old: DataFrame, *, row_key: Sequence[str], columns: Sequence[str]) -> DataFrame:
    """Return the changes: `new` and `old` rows, either of which may be null, and the place of the old row.

    A row of `desired` with `_tombstone` is returned as `deletion` instead of `new`.
    """
    chosen = [named(name) for name in columns]
    right = F.struct(*(comparable(old, name) for name in columns))
    left = F.struct(*(comparable(desired, name) for name in columns))
    new = desired.select(
        F.struct(*chosen).alias("row"),
        left.alias("new_value"),
        F.col(DELETED),
        *(named(name).alias(f"new_{index}") for index, name in enumerate(row_key)),
    )
    was = old.select(
        F.struct(*chosen).alias("old"),
        right.alias("old_value"),
        named(FILE).alias(PLACE[0]),
        named(POSITION).alias(PLACE[1]),
        *(named(name).alias(f"old_{index}") for index, name in enumerate(row_key)),
    )
    keys = {f"new_{index}": f"old_{index}" for index in range(len(row_key))}
    both = new.join(was, equal_columns(keys), "full_outer")
    is_row = F.col("row").isNotNull() & ~F.col(DELETED)
    same = is_row & F.col("old").isNotNull() & F.col("new_value").eqNullSafe(F.col("old_value"))
    changed = both.where(~F.coalesce(same, F.lit(False)))
    return changed.select(
        F.when(is_row, F.col("row")).alias("new"),
        F.when(F.col(DELETED), F.col("row")).alias("deletion"),
        F.col("old"),
        *map(named, PLACE),
    )
