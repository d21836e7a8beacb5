"""What a build keeps of what it takes away: old rows for those who follow them, deletions and truncates for late events."""

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


def keep_before(
    inputs: PlannedInputs, merged: Merged, before: DataFrame | pa.Table, build_id: int, *, marked: DataFrame | None = None
) -> bool:
    """Keep the old rows that a merge changed for those who follow them, deletions, and the truncates among `marked`.

    Says whether there was anything to keep.
    """
    if not _is_kept(inputs, merged) and marked is None:
        return False
    keep_removed(inputs, before, build_id=build_id, generation=inputs.plan.entry.generation, marked=marked)
    return True


def _is_kept(inputs: PlannedInputs, merged: Merged) -> bool:
    """Return whether anybody needs what a merge took away: those who follow the table, or events that come late.

    Also a reader with the same key needs the old row: its query may leave the new one out.
    """
    name = inputs.table.table
    is_followed = any(name in each.change_sources for each in inputs.lake.pipeline.tables)
    return bool(merged.deletions or (merged.gone and is_followed))


def keep_removed(
    inputs: PlannedInputs, rows: DataFrame | pa.Table, *, build_id: int, generation: int, marked: DataFrame | None = None
) -> None:
    """Keep rows with `_tombstone`, and the truncates among the `marked` rows, as removed by a build."""
    lake, table = inputs.lake, inputs.table
    columns = lake.columns[table.table]
    names = (*(column.name for column in columns), DELETED)
    truncates = None if marked is None else _truncates_in(inputs, marked)
    kept: DataFrame | pa.Table
    if isinstance(rows, pa.Table):
        kept = rows.select(names).append_column(TRUNCATES, pa.repeat(pa.scalar(False), rows.num_rows))
        if truncates is not None:
            # A truncate has nulls also where rows can't: `is_current`, if the query's columns are required.
            optional = pa.schema([field.with_nullable(True) for field in kept.schema])
            found = to_arrow(truncates.select(*map(named, kept.column_names))).cast(optional)
            kept = pa.concat_tables([kept.cast(optional), found])
    else:
        kept = rows.select(*map(named, names), F.lit(False).alias(TRUNCATES))
        kept = kept if truncates is None else kept.unionByName(truncates)
    write_removed(lake, table.table, kept, columns=columns, build_id=build_id, generation=generation)
    fault_point(f"{table.table}:kept")


def _truncates_in(inputs: PlannedInputs, marked: DataFrame) -> DataFrame:
    """Return the truncates among rows, as they are kept: their sequence and time, and nulls."""
    _, found = split_truncates(inputs.table, marked)
    assert found is not None
    schema = spark_schema(inputs.lake.columns[inputs.table.table])
    nulls = (F.lit(None).cast(field.dataType).alias(field.name) for field in schema.fields if field.name not in found.columns)
    return found.select("*", *nulls, F.lit(True).alias(DELETED), F.lit(True).alias(TRUNCATES))
