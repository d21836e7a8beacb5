"""Rows that are deleted where they are: Iceberg's position deletes, at most one file of them for each data file.

So what a data file still has is its rows less the positions in that file. Every engine that reads version 2 knows them.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.table import Table

from headrace.tables.spark_files import JavaObject
from headrace.tables.storage import Storage, new_file

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ID = "PARQUET:field_id"
_SCHEMA = pa.schema(
    [
        pa.field("file_path", pa.string(), nullable=False, metadata={_ID: "2147483546"}),
        pa.field("pos", pa.int64(), nullable=False, metadata={_ID: "2147483545"}),
    ]
)
"""The fields and ids that Iceberg's specification gives a file of position deletes."""


def deletes_of(task: JavaObject) -> list[JavaObject]:
    """Gives back the delete files that belong to a scan task's data file."""
    found = task.deletes()
    return [found.get(index) for index in range(found.size())]


def deletes_of_one_file(spark: SparkSession, task: JavaObject) -> list[JavaObject]:
    """Gives back the delete files that are of no use without the task's data file: no other file's rows are in them."""
    content = spark._jvm.org.apache.iceberg.util.ContentFileUtil  # type: ignore[union-attr]
    return [each for each in deletes_of(task) if content.isFileScoped(each)]


def read_positions(table: Table, path: str, deletes: Sequence[str]) -> pa.Array:
    """Gives back the numbers of the rows of a data file that these delete files delete, each once, in their order."""
    found = []
    for each in deletes:
        with table.io.new_input(each).open() as stream:
            rows = pq.read_table(stream, schema=_SCHEMA, use_threads=False)
        found.append(rows.filter(pc.equal(rows["file_path"], path))["pos"].combine_chunks())
    positions = pc.unique(pa.concat_arrays(found)) if found else pa.array([], pa.int64())
    return positions.take(pc.sort_indices(positions))


def stage_deletes(
    spark: SparkSession, java_table: JavaObject, table: Table, *, folder: str, positions: Mapping[str, pa.Array]
) -> dict[str, JavaObject]:
    """Gives back for each data file a delete file with these positions, which are in order. Nothing refers to them yet."""
    name, storage, staged = uuid.uuid4().hex, Storage.of(table.io.properties), {}
    for number, (path, each) in enumerate(positions.items()):
        uri = f"{folder}/part-{name}-{number}-deletes.parquet"
        rows = pa.Table.from_arrays([pa.repeat(path, len(each)), each], schema=_SCHEMA)
        with new_file(uri, storage=storage) as stream:
            pq.write_table(rows, stream, compression="zstd", compression_level=1, store_schema=False)
        staged[path] = _as_java(spark, java_table, uri, path=path)
    return staged


def _as_java(spark: SparkSession, java_table: JavaObject, uri: str, *, path: str) -> JavaObject:
    """Gives back the delete file of one data file as Iceberg's Java library has it."""
    iceberg = spark._jvm.org.apache.iceberg  # type: ignore[union-attr]
    file = java_table.io().newInputFile(uri)
    # Readers find a file's deletes by the bounds of the path, so these must be whole.
    metrics = iceberg.parquet.ParquetUtil.fileMetrics(file, iceberg.MetricsConfig.forPositionDelete())
    builder = iceberg.FileMetadata.deleteFileBuilder(java_table.spec()).ofPositionDeletes()
    return builder.withInputFile(file).withFormat("parquet").withMetrics(metrics).withReferencedDataFile(path).build()
