"""Statistics of a build's rows from one pass, so that the build skips steps that the rows don't need."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import AtomicType

from headrace.build.events import truncates
from headrace.build.removed import DELETED, TRUNCATES
from headrace.iceberg.ledgers.build import BuildLedger
from headrace.spark.columns import named
from headrace.spec.model.layers import LayerTable

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_TRUNCATES, _OMITTED = "__truncates", "__omitted_rows"
_TRUNCATED_AT, _DELETED_AT = "__truncated_at", "__deleted_at"
_BEFORE_TRUNCATES, _BEFORE_DELETES = "__before_truncates", "__before_deletes"


@dataclass(frozen=True)
class BatchStats:
    """The number of truncates, of rows with omitted values, and of rows that may precede a recorded truncate or delete.

    `truncated_at` and `deleted_at` are the newest truncate and delete so far, as text of the first column of `sequence_by`.
    Later rows can't be affected by a recorded truncate or delete.
    """

    truncates: int = 0
    omitted: int = 0
    before_truncates: int = 0
    before_deletes: int = 0
    truncated_at: str | None = None
    deleted_at: str | None = None


def has_batch_stats(table: LayerTable) -> bool:
    """Return whether a table's events need these statistics."""
    return bool(table.apply_as_truncates or table.apply_as_deletes or table.unchanged)


def batch_stats_metrics(table: LayerTable, rows: DataFrame, entry: BuildLedger) -> list[Column]:
    """Return the aggregates over a query's rows for `read_batch_stats`. `entry` is the previous build's."""
    metrics = []
    if table.apply_as_truncates:
        metrics.append(F.count_if(truncates(table)).alias(_TRUNCATES))
        metrics += _newest(table, rows, truncates(table), entry.truncated_at, _TRUNCATED_AT, _BEFORE_TRUNCATES)
    if table.apply_as_deletes:
        deletes = F.expr(table.apply_as_deletes)
        metrics += _newest(table, rows, deletes, entry.deleted_at, _DELETED_AT, _BEFORE_DELETES)
    if table.unchanged:
        metrics.append(F.count_if(F.size(named(table.unchanged)) > 0).alias(_OMITTED))
    return metrics


def read_batch_stats(values: Mapping[str, Any]) -> BatchStats:
    """Return the statistics from the values of the aggregates."""
    return BatchStats(
        truncates=int(values.get(_TRUNCATES, 0)),
        omitted=int(values.get(_OMITTED, 0)),
        before_truncates=int(values.get(_BEFORE_TRUNCATES, 0)),
        before_deletes=int(values.get(_BEFORE_DELETES, 0)),
        truncated_at=values.get(_TRUNCATED_AT),
        deleted_at=values.get(_DELETED_AT),
    )


def batch_stats_here(table: LayerTable, rows: pa.Table, entry: BuildLedger) -> BatchStats | None:
    """Return the statistics of few rows without Spark, or None if only Spark can parse their sequence from text.

    `rows` have `_tombstone` and `_truncates` if the table declares deletes and truncates. The result equals `read_batch_stats`.
    """
    at = rows[table.sequence_by[0]].combine_chunks()
    if not pa.types.is_string(at.type) and not pa.types.is_integer(at.type):
        return None
    truncated_at = deleted_at = None
    count = omitted = before_truncates = before_deletes = 0
    if table.apply_as_truncates:
        count = _count(rows[TRUNCATES])
        truncated_at, before_truncates = _newest_here(at, rows[TRUNCATES], entry.truncated_at)
    if table.apply_as_deletes:
        deleted_at, before_deletes = _newest_here(at, rows[DELETED], entry.deleted_at)
    if table.unchanged:
        omitted = _count(pc.greater(pc.list_value_length(rows[table.unchanged]), 0))
    return BatchStats(count, omitted, before_truncates, before_deletes, truncated_at, deleted_at)


def _newest_here(at: pa.Array, which: pa.ChunkedArray, recorded: str | None) -> tuple[str | None, int]:
    """Compute `_newest` without Spark: the newest sequence of some rows and `recorded`, and how many rows may precede it."""
    last = pa.scalar(recorded, pa.string()).cast(at.type)
    candidates = (last.as_py(), pc.max(at.filter(which.combine_chunks())).as_py())
    sequences = [sequence for sequence in candidates if sequence is not None]
    before = pc.fill_null(pc.less_equal(at, last), False) if last.is_valid else at.is_null()
    return str(max(sequences, key=_sort_key)) if sequences else None, _count(pc.or_(before, at.is_null()))


def _sort_key(sequence: str | int) -> bytes | int:
    """Return the sort key of a sequence in Spark's order, which compares the bytes of strings."""
    return sequence.encode() if isinstance(sequence, str) else sequence


def _count(conditions: pa.Array | pa.ChunkedArray) -> int:
    return pc.sum(conditions).as_py() or 0


def _newest(
    table: LayerTable, rows: DataFrame, which: Column, recorded: str | None, at_name: str, before_name: str
) -> list[Column]:
    name = table.sequence_by[0]
    at, kind = named(name), rows.schema[name].dataType
    if not isinstance(kind, AtomicType):  # a sequence that can't be parsed from text: every row may be older
        newest = F.coalesce(F.max(F.when(which, at)).cast("string"), F.lit(recorded))
        return [newest.alias(at_name), F.count(F.lit(1)).alias(before_name)]
    last = F.lit(recorded).cast(kind)
    newest = F.greatest(F.max(F.when(which, at)), last).cast("string")
    is_before = F.coalesce(at <= last, at.isNull())
    return [newest.alias(at_name), F.count_if(is_before).alias(before_name)]
