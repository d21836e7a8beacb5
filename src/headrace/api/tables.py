"""A table of the lake, read with the library of the caller's choice."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.api.libraries import require
from headrace.errors import HeadraceError, NotFoundError

if TYPE_CHECKING:
    from datetime import datetime

    import duckdb
    import pandas as pd
    import polars as pl
    import pyarrow as pa
    from pyiceberg.table import Table as IcebergTable
    from pyspark.sql import DataFrame

    from headrace.api.project import Project


class Table:
    """A table of the lake, without the columns that only builds need.

    Each method reads its current snapshot, or the snapshot of the moment for which `project.table` returned it.
    """

    def __init__(self, project: Project, name: str, snapshot_id: int | None = None) -> None:
        self._project = project
        self._name = name
        self._snapshot_id = snapshot_id

    @property
    def name(self) -> str:
        """The name, such as `raw.orders`."""
        return self._name

    @property
    def iceberg(self) -> IcebergTable:
        """The PyIceberg table: its schema, snapshots and files. As of a moment, its current snapshot is that of the moment."""
        from headrace.iceberg.snapshots.as_of import as_of

        return as_of(self._project.catalog.load_table(self._name), self._snapshot_id)

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns that readers see."""
        from headrace.iceberg.schema.added_columns import shown_columns

        return shown_columns(self.iceberg)

    def count(self) -> int:
        """Return the number of rows, from the table's metadata."""
        from headrace.iceberg.catalog.tables import count_rows

        return count_rows(self.iceberg)

    def to_arrow(self) -> pa.Table:
        """Return all rows as a PyArrow table."""
        return self.iceberg.scan(selected_fields=self.columns).to_arrow()

    def to_polars(self) -> pl.LazyFrame:
        """Return the table as a lazy Polars frame, which reads only the columns and files that a query needs."""
        from headrace.iceberg.files.storage import Storage
        from headrace.serving.sql.engines.polars import scan_table

        return scan_table(self.iceberg, dict(Storage.of(self._project.catalog.properties).options), self._snapshot_id)

    def to_pandas(self) -> pd.DataFrame:
        """Return all rows as a pandas frame. Raises a MissingLibraryError without pandas."""
        require("pandas")
        return self.to_arrow().to_pandas()

    def to_duckdb(self) -> duckdb.DuckDBPyRelation:
        """Return the table as a lazy DuckDB relation. All tables of a project use one connection, so they can be joined."""
        from headrace.serving.sql.query import scan_source

        return self._project.duckdb.sql(f"SELECT * FROM {scan_source(self.iceberg, self._snapshot_id).relation}")

    def to_spark(self) -> DataFrame:
        """Return the table as a Spark DataFrame, and start Spark if it does not run."""
        from headrace.iceberg.catalog.spark import spark_name
        from headrace.iceberg.files.spark_files import read_snapshot
        from headrace.iceberg.schema.added_columns import hidden_columns
        from headrace.spec.model.pipeline import TableName

        name, spark = TableName.parse(self._name), self._project.spark
        at = self._snapshot_id
        rows = spark.table(spark_name(name)) if at is None else read_snapshot(spark, name, at)
        return rows.drop(*hidden_columns(self.iceberg))

    def __repr__(self) -> str:
        return f"Table({self._name!r})"


def find_table(project: Project, name: str, at: str | datetime | int | None = None) -> Table:
    """Return the table of a name, as it is or as of a moment.

    Raises a NotFoundError that names the pipeline that writes it, or a similar name, and a QueryError if the table has no
    snapshot at that moment.
    """
    from headrace.iceberg.catalog.tables import list_tables
    from headrace.iceberg.snapshots.as_of import resolve_snapshots
    from headrace.iceberg.snapshots.moments import parse_moment
    from headrace.spec.problems import suggest

    known = list_tables(project.catalog)
    if name in known:
        moment = None if at is None else parse_moment(at)
        return Table(project, name, resolve_snapshots(project.catalog, [name], moment).get(name))
    owner = _find_owner(project, name)
    if owner:
        step = f"{owner} writes it. Run: headrace demo {owner} --exit   or land and build it."
    elif known:
        step = suggest(name, known, plural="Tables")
    else:
        step = "The lake has no tables yet. A pipeline creates them when it lands, such as: headrace demo lineage"
    raise NotFoundError(f'table not found: "{name}"', where=str(project.settings.home), next_step=step)


def _find_owner(project: Project, name: str) -> str | None:
    """Return the pipeline that writes a table, also one that comes with Headrace. Pipelines with mistakes are left out."""
    from headrace.spec import list_pipelines

    for listed in list_pipelines(project.settings.folder):
        try:
            pipeline = project.pipeline(listed.name)
        except HeadraceError:
            continue
        names = (*(stream.table for stream in pipeline.streams), *(table.table for table in pipeline.tables))
        if name in map(str, names):
            return listed.name
    return None
