"""Track columns that captured tables gained after their pipeline was written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from pyiceberg.catalog import Catalog

from headrace.build.plan import TablePlan
from headrace.iceberg.catalog.tables import load_table
from headrace.iceberg.schema.columns import spec_columns
from headrace.spec.model.columns import landed_columns
from headrace.spec.model.pipeline import Pipeline, Stream, TableName
from headrace.spec.model.types import Array, Column, ColumnType, Map, Struct

Landed = Mapping[TableName, tuple[Column, ...]]
"""The columns of raw tables."""


def columns_landed(catalog: Catalog, pipeline: Pipeline) -> Landed:
    """Return the current columns of all raw tables."""
    return {stream.table: _columns_now(catalog, stream) for stream in pipeline.streams}


def has_grown(catalog: Catalog, pipeline: Pipeline, plan: TablePlan, *, known: Landed) -> bool:
    """Return whether a raw table that a plan reads has columns that were unknown when its query was analysed.

    Call it after planning: columns are only added, so the plan's snapshots have no other columns than this function sees.
    """
    growing = (stream for stream in pipeline.streams if _grows(stream) and stream.table in plan.table.inputs)
    return any(_columns_now(catalog, stream) != known[stream.table] for stream in growing)


def widest(least: tuple[Column, ...], have: tuple[Column, ...]) -> tuple[Column, ...]:
    """Return the union of the columns at every depth: first the pipeline's columns, then the added ones."""
    existing = {column.name: column for column in have}
    first = tuple(_widest_column(column, existing[column.name]) if column.name in existing else column for column in least)
    names = {column.name for column in least}
    return (*first, *(replace(column, required=False) for column in have if column.name not in names))


def _widest_column(least: Column, have: Column) -> Column:
    return replace(least, type=_widest_type(least.type, have.type), doc=least.doc or have.doc)


def _widest_type(least: ColumnType, have: ColumnType) -> ColumnType:
    if isinstance(least, Struct) and isinstance(have, Struct):
        return Struct(widest(least.columns, have.columns))
    if isinstance(least, Array) and isinstance(have, Array):
        return Array(_widest_type(least.element, have.element))
    if isinstance(least, Map) and isinstance(have, Map):
        return Map(_widest_type(least.value, have.value))
    return have  # a table's type is never narrower than its schema's


def _columns_now(catalog: Catalog, stream: Stream) -> tuple[Column, ...]:
    least = landed_columns(stream)
    table = load_table(catalog, stream.table) if _grows(stream) else None
    return least if table is None else widest(least, spec_columns(table.schema()))


def _grows(stream: Stream) -> bool:
    """Return whether a stream's events contain their own schemas, which may have more columns than the pipeline's."""
    return stream.format == "debezium"
