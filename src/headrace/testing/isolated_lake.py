"""A lake in a temporary folder with one isolated pipeline: append rows to its raw tables, and build."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.iceberg.catalog.tables import ensure_table, open_catalog, table_location
from headrace.sessions.building import Outcome, build, open_lake
from headrace.settings import Settings, load_settings
from headrace.spec.model.columns import landed_columns
from headrace.spec.model.layers import HIDDEN
from headrace.spec.model.pipeline import Pipeline, Stream, TableName
from headrace.testing.raw_tables import append_rows
from headrace.testing.values import Row

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class IsolatedLake:
    """A pipeline's tables in a lake of their own, independent of the settings and of the environment."""

    def __init__(self, pipeline: Pipeline, *, folder: Path, spark: SparkSession) -> None:
        self._settings = settings_of(folder)
        self._catalog = open_catalog(self._settings)
        for stream in pipeline.streams:
            location = table_location(self._settings, stream.table)
            ensure_table(self._catalog, stream.table, columns=landed_columns(stream), location=location)
        self._lake = open_lake(self._settings, pipeline, spark)

    def append(self, stream: Stream, rows: Sequence[Row]) -> None:
        append_rows(self._catalog, self._catalog.load_table(str(stream.table)), rows, topic=stream.topic)

    def build(self) -> tuple[Outcome, ...]:
        return build(self._lake)

    def rows(self, name: TableName) -> list[Row]:
        """Return the rows of a table, without the columns that Headrace adds. A table that was never built has none."""
        if not self._catalog.table_exists(str(name)):
            return []
        columns = [column.name for column in self._lake.columns[name] if column.name not in HIDDEN]
        return list(self._catalog.load_table(str(name)).scan(selected_fields=tuple(columns)).to_arrow().to_pylist())


def settings_of(folder: Path) -> Settings:
    """Return the settings of a test's lake in a folder."""
    return load_settings(flags={"spark.master": "local[2]"}, environ={}, folder=folder)
