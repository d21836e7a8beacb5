"""Data files that a build reads and writes as Arrow, without a Spark job; the commit is a step of its own (build_commit.py)."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.table import Table

from headrace.tables.files import TableFiles, TableFormat
from headrace.tables.spark_files import JavaObject, StagedFiles

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_AT_ONCE = 2


def read_arrow(table: Table, paths: Sequence[str], *, columns: Sequence[str]) -> list[pa.Table]:
    """Gives back these columns of data files, a table for each file, its rows in their order."""

    def read(path: str) -> pa.Table:
        with table.io.new_input(path).open() as stream:
            return pq.read_table(stream, columns=list(columns), use_threads=False).select(list(columns))

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return list(pool.map(read, paths))


def stage_arrow(spark: SparkSession, java_table: JavaObject, table: Table, rows: Sequence[pa.Table]) -> StagedFiles:
    """Gives back files of an unpartitioned table that hold the rows, a file for each part. Nothing refers to them yet."""
    form = TableFormat(table.schema(), table.spec())
    name = uuid.uuid4().hex

    def write(part: tuple[int, pa.Table]) -> list[str]:
        number, each = part
        files = TableFiles(form, folder=f"{table.location()}/data", name=f"{name}-{number}")
        files.write(each.select(form.arrow_schema.names).cast(form.arrow_schema))
        return [str(file.file_path) for file in files.close()]

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        paths = [path for found in pool.map(write, enumerate(rows)) for path in found]
    staged = tuple(_as_java(spark, java_table, path) for path in paths)
    return StagedFiles(
        staged, rows=sum(each.num_rows for each in rows), bytes=sum(int(file.fileSizeInBytes()) for file in staged)
    )


def _as_java(spark: SparkSession, java_table: JavaObject, path: str) -> JavaObject:
    """Gives back a data file as Iceberg's Java library has it, with the metrics that its footer tells."""
    iceberg = spark._jvm.org.apache.iceberg  # type: ignore[union-attr]
    file = java_table.io().newInputFile(path)
    metrics = iceberg.parquet.ParquetUtil.fileMetrics(file, iceberg.MetricsConfig.forTable(java_table))
    return iceberg.DataFiles.builder(java_table.spec()).withInputFile(file).withFormat("parquet").withMetrics(metrics).build()
