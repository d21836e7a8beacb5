"""Data files that Spark reads or writes without committing: the commit is a step of its own (build_commit.py).

Iceberg's compaction works like this: a table and a set of scan tasks are put under an id that Spark then reads from, and what
Spark writes to an id is kept there as files that no snapshot refers to. These are the calls that it makes.
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
"""Iceberg's columns that name the file of a row, and the row's number in it."""


@dataclass(frozen=True)
class StagedFiles:
    """Files that were written and that nothing refers to yet."""

    files: tuple[JavaObject, ...] = ()
    rows: int = 0
    bytes: int = 0


@dataclass(frozen=True)
class ScanFiles:
    """Files of one snapshot, by their path: what `read_files` reads."""

    tasks: Mapping[str, JavaObject]

    @property
    def bytes(self) -> int:
        return sum(int(task.file().fileSizeInBytes()) for task in self.tasks.values())

    def among(self, paths: Sequence[str]) -> ScanFiles:
        return ScanFiles({path: self.tasks[path] for path in paths})


def load_java_table(spark: SparkSession, name: TableName) -> JavaObject:
    """Return the table as Iceberg's Java library has it, at its newest metadata."""
    return iceberg_class(spark, "spark.Spark3Util").loadIcebergTable(spark._jsparkSession, spark_name(name))


def commit_as_planned(table: JavaObject, transaction: JavaObject) -> None:
    """Commit a transaction on the metadata that it began with.

    Its own commit puts its changes on newer metadata if there is any, whatever was checked before.
    """
    table.operations().commit(transaction.startMetadata(), transaction.currentMetadata())


def read_snapshot(spark: SparkSession, name: TableName, snapshot_id: int) -> DataFrame:
    """Return the table's rows in one snapshot."""
    return spark.read.format("iceberg").option("versionAsOf", str(snapshot_id)).load(spark_name(name))


@phase("fetch")
def plan_files(table: JavaObject, *, snapshot_id: int | None, where: JavaObject | None = None) -> ScanFiles:
    """Return the files of a snapshot that can hold rows which satisfy an Iceberg expression.

    The expression chooses files and no more: they are read whole, because they may be written anew with the rest of their rows.
    """
    if snapshot_id is None:
        return ScanFiles({})
    scan = table.newScan().useSnapshot(snapshot_id)
    if where is not None:
        scan = scan.filter(where).ignoreResiduals()
    planned = scan.planFiles()
    try:
        return ScanFiles({str(task.file().location()): task for task in _each(planned)})
    finally:
        planned.close()


def scan_written(spark: SparkSession, table: JavaObject, paths: Mapping[str, int]) -> ScanFiles:
    """Return Parquet files of the table's schema that no snapshot refers to, by their path and number of rows.

    They are scanned as if the table had no partitions: what a partition would tell stands in the rows as well.
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
    """Yield the rows of these files, with `_file` and if wanted `_pos`, while the block runs."""
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
    """Return files of the table's format that hold the rows. Nothing refers to them until a commit does.

    Spark sorts the rows by partition, so that a task has one file open at a time: memory does not grow with the partitions.
    With `is_sorted` they are in such an order already, and stay in it.
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
        staged = tuple(_each(coordinator.fetchNewFiles(table, group)))
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


def _each(iterable: JavaObject) -> Iterator[JavaObject]:
    iterator = iterable.iterator()
    while iterator.hasNext():
        yield iterator.next()
