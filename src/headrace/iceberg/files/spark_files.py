"""Read and write data files with Spark without committing; build_commit.py commits them.

This module makes the same calls as Iceberg's compaction: it registers a table and a set of scan tasks under an id that Spark
reads from. Files that Spark writes to an id stay uncommitted.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from headrace.iceberg.catalog.spark import spark_name
from headrace.iceberg.commits.build_phases import phase
from headrace.spark.java_classes import iceberg_class
from headrace.spec.model.pipeline import TableName

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

JavaObject = Any
"""An object that lives in Spark's JVM."""

FILE, POSITION = "_file", "_pos"
"""Iceberg's metadata columns: the path of a row's file, and its position in the file."""


@dataclass(frozen=True)
class StagedFiles:
    """Written files that are not committed yet."""

    files: tuple[JavaObject, ...] = ()
    rows: int = 0
    bytes: int = 0


@dataclass(frozen=True)
class ScanFiles:
    """Scan tasks of one snapshot by file path, the input of `read_files`."""

    tasks: Mapping[str, JavaObject]

    @property
    def bytes(self) -> int:
        return sum(int(task.file().fileSizeInBytes()) for task in self.tasks.values())

    def among(self, paths: Sequence[str]) -> ScanFiles:
        return ScanFiles({path: self.tasks[path] for path in paths})


def load_java_table(spark: SparkSession, name: TableName) -> JavaObject:
    """Load the table with Iceberg's Java library, at its newest metadata."""
    return iceberg_class(spark, "spark.Spark3Util").loadIcebergTable(spark._jsparkSession, spark_name(name))


def commit_as_planned(table: JavaObject, transaction: JavaObject) -> None:
    """Commit a transaction on the metadata that it started from; fail if the table has changed since.

    Iceberg's own `commitTransaction` would rebase the changes on newer metadata, regardless of earlier checks.
    """
    table.operations().commit(transaction.startMetadata(), transaction.currentMetadata())


def read_snapshot(spark: SparkSession, name: TableName, snapshot_id: int) -> DataFrame:
    """Return the table's rows in one snapshot."""
    return spark.read.format("iceberg").option("versionAsOf", str(snapshot_id)).load(spark_name(name))


@phase("fetch")
def plan_files(table: JavaObject, *, snapshot_id: int | None, where: JavaObject | None = None) -> ScanFiles:
    """Return the files of a snapshot that can hold rows matching an Iceberg expression.

    The expression only prunes files. The files are read whole, because they may be rewritten with their other rows.
    """
    if snapshot_id is None:
        return ScanFiles({})
    scan = table.newScan().useSnapshot(snapshot_id)
    if where is not None:
        scan = scan.filter(where).ignoreResiduals()
    planned = scan.planFiles()
    try:
        return ScanFiles({str(task.file().location()): task for task in _iterate(planned)})
    finally:
        planned.close()


def scan_written(spark: SparkSession, table: JavaObject, paths: Mapping[str, int]) -> ScanFiles:
    """Return scan tasks of uncommitted Parquet files with the table's schema, given by path and row count.

    They are scanned as files of an unpartitioned table: the rows contain the partition values, too.
    """
    iceberg = partial(iceberg_class, spark)
    spec = iceberg("PartitionSpec").unpartitioned()
    schema, partitioning = iceberg("SchemaParser").toJson(table.schema()), iceberg("PartitionSpecParser").toJson(spec)
    everything = iceberg("expressions.Expressions").alwaysTrue()
    residuals = iceberg("expressions.ResidualEvaluator").unpartitioned(everything)
    none = spark._sc._gateway.new_array(iceberg("DeleteFile").for_py4j, 0)  # type: ignore[union-attr]
    tasks = {}
    for path, rows in paths.items():
        builder = iceberg("DataFiles").builder(spec).withInputFile(table.io().newInputFile(path)).withFormat("parquet")
        file = builder.withRecordCount(rows).build()
        tasks[path] = iceberg("BaseFileScanTask")(file, none, schema, partitioning, residuals)
    return ScanFiles(tasks)


@contextmanager
def read_files(
    spark: SparkSession, table: JavaObject, files: ScanFiles, *, with_positions: bool = False
) -> Iterator[DataFrame]:
    """Yield the rows of these files with `_file` and optionally `_pos`. The frame is valid within the block."""
    place = (FILE, POSITION) if with_positions else (FILE,)
    if not files.tasks:
        yield spark.read.format("iceberg").load(f"{table.name()}").select("*", *place).limit(0)
        return
    jvm: Any = spark._jvm
    tasks = jvm.java.util.ArrayList()
    for task in files.tasks.values():
        tasks.add(task)
    with _under_an_id(spark, table) as group:
        manager = iceberg_class(spark, "spark.ScanTaskSetManager").get()
        manager.stageTasks(table, group, tasks)
        try:
            yield spark.read.format("iceberg").load(group).select("*", *place)
        finally:
            manager.removeTasks(table, group)


def stage_files(spark: SparkSession, table: JavaObject, rows: DataFrame, *, is_sorted: bool = False) -> StagedFiles:
    """Write the rows to uncommitted files in the table's format.

    Spark sorts the rows by partition, so that a task has one open file at a time: memory does not grow with the number of
    partitions. With `is_sorted` the rows are already sorted, and their order is kept.
    """
    with _under_an_id(spark, table) as group:
        (
            rows.write.format("iceberg")
            .option("distribution-mode", "none")
            .option("fanout-enabled", "false")
            .option("use-table-distribution-and-ordering", str(not is_sorted).lower())
            .mode("append")
            .save(group)
        )
        coordinator = iceberg_class(spark, "spark.FileRewriteCoordinator").get()
        staged = tuple(_iterate(coordinator.fetchNewFiles(table, group)))
        coordinator.clearRewrite(table, group)
    return StagedFiles(
        staged,
        rows=sum(int(file.recordCount()) for file in staged),
        bytes=sum(int(file.fileSizeInBytes()) for file in staged),
    )


@contextmanager
def _under_an_id(spark: SparkSession, table: JavaObject) -> Iterator[str]:
    group = str(uuid.uuid4())
    cache = iceberg_class(spark, "spark.SparkTableCache").get()
    cache.add(group, table)
    try:
        yield group
    finally:
        cache.remove(group)


def _iterate(iterable: JavaObject) -> Iterator[JavaObject]:
    iterator = iterable.iterator()
    while iterator.hasNext():
        yield iterator.next()
