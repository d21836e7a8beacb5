"""What a build works with, and how the inputs of a table are read as they stand in its plan."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import polars as pl
from pyiceberg.catalog import Catalog
from pyspark.sql import functions as F  # noqa: N812

from headrace.build.changes import Changes, read_changes, read_frame
from headrace.build.entities.read_files import ReadFiles
from headrace.build.inputs import is_raw, position_column, read_input
from headrace.build.plan import TablePlan
from headrace.build.source import run_source
from headrace.settings import Settings
from headrace.spec.layers import LayerTable
from headrace.spec.pipeline import Pipeline, TableName
from headrace.spec.stage_query import follow_columns
from headrace.spec.types import Column
from headrace.tables.catalog import load_table
from headrace.tables.spark_catalog import use_session
from headrace.tables.spark_columns import named

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class Lake:
    """A pipeline's tables: the session and catalog that reach them, and the columns of each.

    `small` is a session for builds of few rows: it compiles nothing, which takes longer than such a build does. `read_files` is
    what builds have read and the next ones need again.
    """

    spark: SparkSession
    small: SparkSession
    catalog: Catalog
    settings: Settings
    pipeline: Pipeline
    columns: Mapping[TableName, tuple[Column, ...]]
    read_files: ReadFiles = field(default_factory=ReadFiles)

    def for_build(self, plan: TablePlan) -> Lake:
        """Gives back the lake with the session that suits a build, which is then the active one of this thread."""
        chosen = replace(self, spark=self.small) if plan.is_small else self
        use_session(chosen.spark)
        return chosen


@dataclass(frozen=True)
class PlannedInputs:
    """The inputs of one table at the points that its plan names."""

    lake: Lake
    plan: TablePlan

    @property
    def table(self) -> LayerTable:
        return self.plan.table

    def whole(self, name: TableName) -> DataFrame:
        """Gives back all rows of an input."""
        return read_input(self.lake.spark, name, self.plan.until[name], columns=self.lake.columns[name])

    def unchanged(self, name: TableName) -> DataFrame:
        """Gives back the rows of an input that the last build has read already."""
        position = position_column(name, self.lake.pipeline)
        columns = self.lake.columns[name]
        rows = read_input(self.lake.spark, name, self.plan.until[name], columns=columns, with_position=position)
        rows = rows.where(F.col(position) <= self.plan.since[name].position)
        return rows.select(*(named(column.name) for column in columns))

    def past(self, name: TableName) -> DataFrame | None:
        """Gives back all rows of an input as the last build read them, or None where they are no longer known."""
        since = self.plan.since[name]
        if is_raw(name, self.lake.pipeline):
            return self.unchanged(name)  # landed rows only come, and history is thinned there
        if since.snapshot_id is not None:
            found = load_table(self.lake.catalog, name)
            if found is None or found.snapshot_by_id(since.snapshot_id) is None:
                return None
        return read_input(self.lake.spark, name, since, columns=self.lake.columns[name])

    def changes(self, name: TableName) -> Changes:
        """Gives back what happened to an input since the last build."""
        return read_changes(
            self.lake.spark,
            self.lake.catalog,
            self.lake.pipeline,
            name,
            since=self.plan.since[name],
            until=self.plan.until[name],
            columns=self.lake.columns[name],
        )

    def frame(self, name: TableName, names: Collection[str]) -> pl.DataFrame | None:
        """Gives back these columns of the rows that the build reads of an input: all, or those that came since the last one.

        None where it takes Spark to read them.
        """
        return read_frame(
            self.lake.catalog,
            self.lake.pipeline,
            name,
            since=None if self.plan.action == "refresh" else self.plan.since[name],
            until=self.plan.until[name],
            columns=[each for each in self.lake.columns[name] if each.name in names],
        )

    def moved(self, name: TableName) -> bool:
        return not self.plan.since[name].is_at(self.plan.until[name])

    def run(self, drivers: Mapping[TableName, DataFrame], *, past: Mapping[TableName, DataFrame] | None = None) -> DataFrame:
        """Gives back what the table's file makes of these rows of its drivers and of its lookups as they are, or as they were
        where `past` has them."""
        known = past or {}
        lookups = {name: known[name] if name in known else self.whole(name) for name in self.table.lookups}
        return run_source(self.lake.spark, follow_columns(self.table, self.lake.columns), {**lookups, **drivers})
