"""The resources that a pipeline's builds share: sessions, catalog, columns and caches."""

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
"""The size of each cache in bytes of Arrow. Spark holds the same rows, several times as large, in a heap of 1 GB."""

_MOST_PLACEHOLDERS = 2_000
"""How many inputs of prepared queries are cached: enough for hundreds of tables. Inputs with outdated columns are evicted."""


@dataclass(frozen=True)
class Lake:
    """A pipeline's tables: the session and catalog to access them, and the columns of each.

    `small` is a session for builds of few rows, without code generation, because compiling would take longer than the build.
    `read_files` caches files for later builds. `files` lists the files of snapshots, and `store` looks up their rows by column
    values. `change_sets` and `lookups` cache small inputs that several builds read, so that Spark gets their rows once.
    `read_snapshots` are the snapshots that the pipeline's tables have read up to. `placeholders` are the inputs of prepared
    queries. `commit_seconds` is the duration of each table's last commit.
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
        """Return the lake with one of its sessions as `spark`, and make it this thread's active session."""
        use_session(session)
        return replace(self, spark=session)
