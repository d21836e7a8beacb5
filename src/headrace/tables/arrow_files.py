"""Data files that a build reads and writes as Arrow, without a Spark job; the commit is a step of its own (build_commit.py)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.table import Table

from headrace.tables.build_phases import phase
from headrace.tables.deleted_rows import deletes_of
from headrace.tables.java_classes import iceberg_class
from headrace.tables.spark_files import JavaObject, StagedFiles
from headrace.tables.staged_rows import fit_columns, stage_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_AT_ONCE = 2


@dataclass(frozen=True)
class ArrowFile:
    """A data file: where it is, how many rows are written in it, and where the positions of those are that were deleted."""

    path: str
    rows: int
    deletes: tuple[str, ...] = ()


def arrow_file(path: str, task: JavaObject) -> ArrowFile:
    """Gives back the data file of a scan task."""
    return ArrowFile(path, int(task.file().recordCount()), tuple(str(each.location()) for each in deletes_of(task)))


@phase("fetch")
def read_arrow(table: Table, paths: Sequence[str], *, columns: Sequence[str]) -> list[pa.Table]:
    """Return these columns of data files, a table for each file, its rows in their order, also those that were deleted.

    Columns have the types that the table has now; one that came after a file was written is null there.
    """
    schema = _schema_of(table, columns)

    def read(path: str) -> pa.Table:
        with table.io.new_input(path).open() as stream:
            file = pq.ParquetFile(stream)
            return fit_columns(file.read(columns=_there(file, columns), use_threads=False), schema)

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return list(pool.map(read, paths))


@phase("fetch")
def read_row_groups(table: Table, rows: Mapping[str, pa.Array], *, columns: Sequence[str]) -> dict[str, dict[int, pa.Table]]:
    """Return these columns of the row groups that hold given rows of each data file, by the number of their first row.

    Columns are those of the table as it is now, as in `read_arrow`.
    """
    schema = _schema_of(table, columns)

    def read(wanted: tuple[str, pa.Array]) -> dict[int, pa.Table]:
        path, positions = wanted
        found, first = {}, 0
        with table.io.new_input(path).open() as stream:
            file = pq.ParquetFile(stream)
            for group in range(file.metadata.num_row_groups):
                end = first + file.metadata.row_group(group).num_rows
                if pc.any(pc.and_(pc.greater_equal(positions, first), pc.less(positions, end))).as_py():
                    held = file.read_row_group(group, columns=_there(file, columns), use_threads=False)
                    found[first] = fit_columns(held, schema)
                first = end
        return found

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return dict(zip(rows, pool.map(read, rows.items()), strict=True))


@phase("write")
def stage_arrow(spark: SparkSession, java_table: JavaObject, table: Table, rows: Sequence[pa.Table]) -> StagedFiles:
    """Gives back files of an unpartitioned table that hold the rows, a file for each part. Nothing refers to them yet.

    A column that the rows lack is null in them.
    """
    paths = [file.file_path for file in stage_rows(table, rows)]
    staged = tuple(_as_java(spark, java_table, path) for path in paths)
    return StagedFiles(
        staged, rows=sum(each.num_rows for each in rows), bytes=sum(int(file.fileSizeInBytes()) for file in staged)
    )


def with_constants(rows: pa.Table, values: Mapping[str, int]) -> pa.Table:
    """Gives back the rows with columns that have one value each, a long."""
    for name, value in values.items():
        rows = rows.append_column(name, pa.repeat(pa.scalar(value, pa.int64()), rows.num_rows))
    return rows


def _there(file: pq.ParquetFile, columns: Sequence[str]) -> list[str]:
    """Return the columns that a file has."""
    names = {*file.schema_arrow.names}
    return [name for name in columns if name in names]


def _schema_of(table: Table, columns: Sequence[str]) -> pa.Schema:
    schema = table.schema().as_arrow()
    return pa.schema([schema.field(name) for name in columns])


def _as_java(spark: SparkSession, java_table: JavaObject, path: str) -> JavaObject:
    """Gives back a data file as Iceberg's Java library has it, with the metrics that its footer tells."""
    file = java_table.io().newInputFile(path)
    metrics = iceberg_class(spark, "parquet.ParquetUtil").fileMetrics(
        file, iceberg_class(spark, "MetricsConfig").forTable(java_table)
    )
    builder = iceberg_class(spark, "DataFiles").builder(java_table.spec())
    return builder.withInputFile(file).withFormat("parquet").withMetrics(metrics).build()
