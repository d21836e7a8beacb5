"""Read the changes of an input since it was last read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import polars as pl
from pyiceberg.catalog import Catalog
from pyiceberg.table import ALWAYS_TRUE
from pyspark.sql import functions as F  # noqa: N812

from headrace.build.inputs import is_raw, position_column, read_input
from headrace.build.removed import read_removed
from headrace.build.rows import ChangeSet, SparkRows
from headrace.iceberg.ledgers.build import InputState
from headrace.iceberg.rows.filters import column_between
from headrace.iceberg.schema.columns import iceberg_schema, spec_columns
from headrace.spark.columns import named
from headrace.spec.model.pipeline import Pipeline, TableName
from headrace.spec.model.types import Column

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MOST_FILES = 500
"""The maximum number of an input's files that PyIceberg plans; Spark reads inputs with more."""

_MOST_ROWS = 5_000_000
"""The maximum number of an input's rows that are read into this process; the query may filter out most of them."""


def read_changes(
    spark: SparkSession,
    catalog: Catalog,
    pipeline: Pipeline,
    name: TableName,
    *,
    since: InputState,
    until: InputState,
    columns: tuple[Column, ...],
) -> ChangeSet:
    """Return the change set of an input between two states.

    Rows have a column with the position at which they were added, so compaction and snapshot expiry don't affect the result,
    and files without such rows are not opened.
    """
    position = position_column(name, pipeline)
    rows = read_input(spark, name, until, columns=columns, with_position=position)
    rows = rows.where((F.col(position) > since.position) & (F.col(position) <= until.position))
    rows = rows.select(*(named(column.name) for column in columns))
    if is_raw(name, pipeline):
        return ChangeSet(SparkRows(rows))
    removed = read_removed(spark, catalog, name, since=since, until=until, columns=columns)
    return ChangeSet(SparkRows(rows), None if removed is None else SparkRows(removed))


def read_frame(
    catalog: Catalog,
    pipeline: Pipeline,
    name: TableName,
    *,
    since: InputState | None,
    until: InputState,
    columns: Sequence[Column],
) -> pl.DataFrame | None:
    """Return these columns of the rows added to an input between two states, read without Spark.

    Without `since`, return all rows. Return None if Spark must read them: rows were removed or changed, a column had another
    type in the snapshot, or there are too many files or rows.
    """
    if since and not is_raw(name, pipeline) and (until.removed_in is None or until.removed_in > since.position):
        return None
    if until.rows - (since.rows if since else 0) > _MOST_ROWS:
        return None
    if until.snapshot_id is None or (since and since.is_at(until)):
        return pl.DataFrame(iceberg_schema(tuple(columns)).as_arrow().empty_table())
    table = catalog.load_table(str(name))
    snapshot = table.snapshot_by_id(until.snapshot_id)
    if snapshot is None or snapshot.schema_id is None:
        return None
    types = {column.name: column.type for column in spec_columns(table.schemas()[snapshot.schema_id])}
    manifests = snapshot.manifests(table.io)
    files = sum((manifest.added_files_count or 0) + (manifest.existing_files_count or 0) for manifest in manifests)
    if files > _MOST_FILES or any(types.get(column.name) != column.type for column in columns):
        return None
    position = position_column(name, pipeline)
    added = column_between(position, since.position + 1, until.position) if since else ALWAYS_TRUE
    names = tuple(column.name for column in columns)
    return pl.DataFrame(table.scan(row_filter=added, selected_fields=names, snapshot_id=snapshot.snapshot_id).to_arrow())
