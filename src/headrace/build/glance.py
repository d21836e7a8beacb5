"""What one pass over a build's rows tells beforehand, so that the build does nothing that they don't need."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import AtomicType

from headrace.build.events import truncates
from headrace.spec.layers import LayerTable
from headrace.tables.build_ledger import BuildLedger
from headrace.tables.spark_columns import named

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_TRUNCATES, _UNTOLD = "__truncates", "__untold_rows"
_TRUNCATED_AT, _DELETED_AT = "__truncated_at", "__deleted_at"
_BEFORE_TRUNCATES, _BEFORE_DELETES = "__before_truncates", "__before_deletes"


@dataclass(frozen=True)
class Glance:
    """How many rows are truncates, how many have values that they don't tell, and how many may be older than what is kept.

    `truncated_at` and `deleted_at` are the newest of all truncates and deletions so far, as text: the first column of
    `sequence_by`. What comes after them can't be changed by one that was kept.
    """

    truncates: int = 0
    untold: int = 0
    before_truncates: int = 0
    before_deletes: int = 0
    truncated_at: str | None = None
    deleted_at: str | None = None


def has_glance(table: LayerTable) -> bool:
    """Return whether a table's events need a glance at all."""
    return bool(table.apply_as_truncates or table.apply_as_deletes or table.unchanged)


def glance_metrics(table: LayerTable, rows: DataFrame, entry: BuildLedger) -> list[Column]:
    """Gives back the aggregates over a query's rows that `read_glance` understands. `entry` is of the build before, if any."""
    metrics = []
    if table.apply_as_truncates:
        metrics.append(F.count_if(truncates(table)).alias(_TRUNCATES))
        metrics += _newest(table, rows, truncates(table), entry.truncated_at, _TRUNCATED_AT, _BEFORE_TRUNCATES)
    if table.apply_as_deletes:
        deletes = F.expr(table.apply_as_deletes)
        metrics += _newest(table, rows, deletes, entry.deleted_at, _DELETED_AT, _BEFORE_DELETES)
    if table.unchanged:
        metrics.append(F.count_if(F.size(named(table.unchanged)) > 0).alias(_UNTOLD))
    return metrics


def read_glance(values: Mapping[str, Any]) -> Glance:
    """Gives back what came of the aggregates."""
    return Glance(
        truncates=int(values.get(_TRUNCATES, 0)),
        untold=int(values.get(_UNTOLD, 0)),
        before_truncates=int(values.get(_BEFORE_TRUNCATES, 0)),
        before_deletes=int(values.get(_BEFORE_DELETES, 0)),
        truncated_at=values.get(_TRUNCATED_AT),
        deleted_at=values.get(_DELETED_AT),
    )


def _newest(
    table: LayerTable, rows: DataFrame, which: Column, kept: str | None, at_name: str, before_name: str
) -> list[Column]:
    name = table.sequence_by[0]
    at, kind = named(name), rows.schema[name].dataType
    if not isinstance(kind, AtomicType):  # a sequence that can't be read back from text: every row may be older
        newest = F.coalesce(F.max(F.when(which, at)).cast("string"), F.lit(kept))
        return [newest.alias(at_name), F.count(F.lit(1)).alias(before_name)]
    last = F.lit(kept).cast(kind)
    newest = F.greatest(F.max(F.when(which, at)), last).cast("string")
    is_before = F.coalesce(at <= last, at.isNull())
    return [newest.alias(at_name), F.count_if(is_before).alias(before_name)]
