"""What the builds of a pipeline share: sessions, catalog, columns, and what they have read."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from pyiceberg.catalog import Catalog

from headrace.bounded_cache import BoundedCache
from headrace.build.entities.read_files import ReadFiles
from headrace.build.readers import ReadSnapshots
from headrace.build.rows import ChangeSet, LocalRows
from headrace.iceberg.files.live_files import LiveFiles
from headrace.iceberg.rows.row_store import RowStore
from headrace.settings import Settings
from headrace.spark.active_session import use_session
from headrace.spark.prepared_queries import Placeholder
from headrace.spec.model.pipeline import Pipeline, TableName
from headrace.spec.model.types import Column

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CACHED_BYTES = 4 * 1024 * 1024
"""How many bytes of Arrow are cached of each. Spark holds the same rows, several times as large, in a heap of 1 GB."""

_MOST_PLACEHOLDERS = 2_000
"""How many inputs of prepared queries are kept: more than hundreds of tables have. Those of columns of the past are dropped."""


@dataclass(frozen=True)
class Lake:
    """A pipeline's tables: the session and catalog that reach them, and the columns of each.

    `small` is a session for builds of few rows: it compiles nothing, which takes longer than such a build does. `read_files` is
    what builds have read and the next ones need again. `files` knows the files of every snapshot, and `store` their rows by the
    values of some columns. `change_sets` and `lookups` are small ones of snapshots that several builds read: Spark is given
    their rows once. `read_snapshots` are those that the pipeline's tables have read up to. `placeholders` stand for the inputs
    of queries that were planned. `commit_seconds` is how long the last commit of each table took.
    """

    spark: SparkSession
    small: SparkSession
    catalog: Catalog
    settings: Settings
    pipeline: Pipeline
    columns: Mapping[TableName, tuple[Column, ...]]
    files: LiveFiles
    store: RowStore
    read_files: ReadFiles = field(default_factory=ReadFiles)
    change_sets: BoundedCache[Hashable, ChangeSet] = field(default_factory=lambda: BoundedCache(_CACHED_BYTES))
    lookups: BoundedCache[Hashable, LocalRows] = field(default_factory=lambda: BoundedCache(_CACHED_BYTES))
    placeholders: BoundedCache[Hashable, Placeholder] = field(default_factory=lambda: BoundedCache(_MOST_PLACEHOLDERS))
    read_snapshots: ReadSnapshots = field(default_factory=ReadSnapshots)
    commit_seconds: dict[TableName, float] = field(default_factory=dict)

    def with_session(self, session: SparkSession) -> Lake:
        """Return the lake with one of its sessions in the place of `spark`, which is then the active one of this thread."""
        use_session(session)
        return replace(self, spark=session)
