"""Record the rows that a build replaced or deleted in a layer table.

They are stored in `metadata.removed_<namespace>_<table>` (`__` replaces the dot of a nested namespace) for downstream tables,
which must rebuild the rows derived from them. Deletes are recorded, too, so that an older event that arrives late does not
restore a deleted row; truncates for the same reason. All are written before the build commits. If the build crashes in between,
they contain rows that are still in the table: downstream tables then rebuild rows that did not change, without any other
effect.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyspark.sql import functions as F  # noqa: N812

from headrace.build.lake import Lake
from headrace.build.types import fit_columns, spark_schema
from headrace.iceberg.catalog.spark import spark_name
from headrace.iceberg.catalog.tables import ensure_table, load_table, table_location
from headrace.iceberg.commits.append import append_once
from headrace.iceberg.commits.build_commit import append_files
from headrace.iceberg.commits.build_phases import phase
from headrace.iceberg.commits.commit import commit_once
from headrace.iceberg.files.spark_files import load_java_table, stage_files
from headrace.iceberg.files.staged_rows import stage_rows
from headrace.iceberg.ledgers.build import InputState
from headrace.iceberg.rows.arrow_files import with_constants
from headrace.iceberg.schema.rescaling import replace_columns, rescaled_columns
from headrace.spark.columns import named
from headrace.spec.loading.names import METADATA
from headrace.spec.model.layers import BUILD_ID
from headrace.spec.model.pipeline import TableName
from headrace.spec.model.types import Column, Primitive

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

GENERATION = "_generation"
DELETED = "_tombstone"
TRUNCATES = "_truncates"


_IS_ROW = f"{TRUNCATES} IS NOT TRUE"
_OWN = (
    Column(DELETED, Primitive("boolean")),
    Column(GENERATION, Primitive("long")),
    Column(BUILD_ID, Primitive("long")),
    Column(TRUNCATES, Primitive("boolean")),
)


def removed_name(name: TableName) -> TableName:
    return TableName(METADATA, f"removed_{name.flat_namespace}_{name.name}")


@phase("write")
def write_removed(
    lake: Lake, name: TableName, rows: DataFrame | pa.Table, *, columns: tuple[Column, ...], build_id: int, generation: int
) -> None:
    """Record rows, with the table's columns, `_tombstone` and `_truncates`, as removed by a build.

    The rows of a small build stay in memory for downstream tables.
    """
    target = removed_name(name)
    have = load_table(lake.catalog, target)
    rescaled = () if have is None else rescaled_columns(have, columns)
    if rescaled:
        # Rows of earlier generations lose the column; they are not read again.
        replace_columns(lake.spark, load_java_table(lake.spark, target), rescaled)
    location = table_location(lake.settings, target)
    table = ensure_table(lake.catalog, target, columns=(*columns, *_OWN), location=location)
    marks = {GENERATION: generation, BUILD_ID: build_id}
    if isinstance(rows, pa.Table):
        files = stage_rows(table, [with_constants(rows, marks)], written=partial(lake.store.put, table))
        # Duplicate rows are harmless, so a commit whose response was lost is retried.
        append_once(lake.catalog, table, files=files, entry=lambda *_: {}, is_committed=lambda _: False)
        return
    marked = rows.withColumns({mark: F.lit(value).cast("long") for mark, value in marks.items()})
    staged = stage_files(lake.spark, load_java_table(lake.spark, target), marked.coalesce(1))
    append_files(lake.spark, target, added=staged.files)


def read_removed(
    spark: SparkSession,
    catalog: Catalog,
    name: TableName,
    *,
    since: InputState,
    until: InputState,
    columns: tuple[Column, ...],
) -> DataFrame | None:
    """Return the rows that builds removed between two states, or None if there are none."""
    if until.removed_in is not None and until.removed_in <= since.position:
        return None
    rows = _read(spark, catalog, name, columns=columns)
    if rows is None:
        return None
    rows = rows.where(F.col(BUILD_ID).between(since.position + 1, until.position) & (F.col(GENERATION) == until.generation))
    rows = rows.where(_IS_ROW)
    rows = rows.select(*(named(column.name) for column in columns))
    return None if until.removed_in is None and rows.isEmpty() else rows


def read_deletes(
    spark: SparkSession, catalog: Catalog, name: TableName, *, generation: int, columns: tuple[Column, ...]
) -> DataFrame | None:
    """Return the deletes since the last refresh, or None if there are none."""
    rows = _read(spark, catalog, name, columns=columns)
    if rows is None:
        return None
    rows = rows.where(F.col(DELETED) & (F.col(GENERATION) == generation) & F.expr(_IS_ROW))
    return rows.select(*(named(column.name) for column in columns))


def read_truncates(
    spark: SparkSession, catalog: Catalog, name: TableName, *, generation: int, columns: tuple[Column, ...]
) -> DataFrame | None:
    """Return the truncates since the last refresh, possibly with duplicates, or None if there are none."""
    rows = _read(spark, catalog, name, columns=columns)
    if rows is None:
        return None
    rows = rows.where(F.col(TRUNCATES) & (F.col(GENERATION) == generation))
    return rows.select(*(named(column.name) for column in columns))


def forget_removed(catalog: Catalog, name: TableName, *, generation: int) -> None:
    """Delete the rows of earlier generations, which are not read again. Idempotent by generation."""
    older = f"{GENERATION} < {generation}"

    def commit() -> bool:
        table = load_table(catalog, removed_name(name))
        if table is not None and table.scan(row_filter=older, selected_fields=(GENERATION,), limit=1).to_arrow().num_rows:
            table.delete(older)
        return True

    commit_once(commit, find=lambda: None, where=str(removed_name(name)))


def forget_read(catalog: Catalog, name: TableName, *, generation: int, position: int) -> None:
    """Delete rows that builds up to `position` removed and all downstream tables have read. Idempotent by position.

    Deletes and truncates stay, because an older event may still arrive.
    """
    read = f"{GENERATION} = {generation} and {BUILD_ID} <= {position} and {DELETED} = false"

    def commit() -> bool:
        table = load_table(catalog, removed_name(name))
        if table is not None and table.scan(row_filter=read, selected_fields=(BUILD_ID,), limit=1).to_arrow().num_rows:
            table.delete(read)
        return True

    commit_once(commit, find=lambda: None, where=str(removed_name(name)))


def _read(spark: SparkSession, catalog: Catalog, name: TableName, *, columns: tuple[Column, ...]) -> DataFrame | None:
    table = load_table(catalog, removed_name(name))
    if table is None or table.current_snapshot() is None:
        return None
    rows = spark.read.format("iceberg").load(spark_name(removed_name(name)))
    fitted = fit_columns(rows, spark_schema((*columns, *_OWN)))
    return rows.select(*(column.alias(name) for name, column in fitted.items()))
