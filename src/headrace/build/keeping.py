"""Retain the rows that a build removes: old rows for downstream tables, deletes and truncates for late events."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812

from headrace.build.events import split_truncates
from headrace.build.planned_inputs import PlannedInputs
from headrace.build.removed import DELETED, TRUNCATES, write_removed
from headrace.build.target import Merged
from headrace.build.types import spark_schema
from headrace.faults import fault_point
from headrace.spark.arrow import to_arrow
from headrace.spark.columns import named

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def record_replaced(
    inputs: PlannedInputs, merged: Merged, before: DataFrame | pa.Table, build_id: int, *, marked: DataFrame | None = None
) -> bool:
    """Retain the old rows that a merge changed, deletes, and the truncates among `marked`.

    Return whether anything was retained.
    """
    if not _is_needed(inputs, merged) and marked is None:
        return False
    record_removed(inputs, before, build_id=build_id, generation=inputs.plan.entry.generation, marked=marked)
    return True


def _is_needed(inputs: PlannedInputs, merged: Merged) -> bool:
    """Return whether downstream tables or late events need the rows that a merge removed.

    A downstream table with the same key needs the old row, too: its query may filter out the new one.
    """
    name = inputs.table.table
    is_followed = any(name in table.change_sources for table in inputs.lake.pipeline.tables)
    return bool(merged.deletions or (merged.gone and is_followed))


def record_removed(
    inputs: PlannedInputs, rows: DataFrame | pa.Table, *, build_id: int, generation: int, marked: DataFrame | None = None
) -> None:
    """Record rows with `_tombstone`, and the truncates among the `marked` rows, as removed by a build."""
    lake, table = inputs.lake, inputs.table
    columns = lake.columns[table.table]
    names = (*(column.name for column in columns), DELETED)
    truncates = None if marked is None else _truncates_in(inputs, marked)
    removed: DataFrame | pa.Table
    if isinstance(rows, pa.Table):
        removed = rows.select(names).append_column(TRUNCATES, pa.repeat(pa.scalar(False), rows.num_rows))
        if truncates is not None:
            # A truncate has nulls even in required columns, such as `is_current`.
            optional = pa.schema([field.with_nullable(True) for field in removed.schema])
            truncate_rows = to_arrow(truncates.select(*map(named, removed.column_names))).cast(optional)
            removed = pa.concat_tables([removed.cast(optional), truncate_rows])
    else:
        removed = rows.select(*map(named, names), F.lit(False).alias(TRUNCATES))
        removed = removed if truncates is None else removed.unionByName(truncates)
    write_removed(lake, table.table, removed, columns=columns, build_id=build_id, generation=generation)
    fault_point(f"{table.table}:kept")


def _truncates_in(inputs: PlannedInputs, marked: DataFrame) -> DataFrame:
    """Return the truncates among rows in the form that is recorded: their sequence and time, and nulls."""
    _, truncates = split_truncates(inputs.table, marked)
    assert truncates is not None
    schema = spark_schema(inputs.lake.columns[inputs.table.table])
    missing = (field for field in schema.fields if field.name not in truncates.columns)
    nulls = (F.lit(None).cast(field.dataType).alias(field.name) for field in missing)
    return truncates.select("*", *nulls, F.lit(True).alias(DELETED), F.lit(True).alias(TRUNCATES))
