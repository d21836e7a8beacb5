"""Rows that are deleted where they are: Iceberg's position deletes, at most one file of them for each data file.

So what a data file still has is its rows less the positions in that file. Every engine that reads version 2 knows them.
"""

from __future__ import annotations

import json
import struct
import uuid
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pyarrow as pa
from pyiceberg.table import Table

from headrace.tables.java_classes import iceberg_class
from headrace.tables.manifests import PATH_ID, POSITION_ID
from headrace.tables.position_deletes import write_positions
from headrace.tables.spark_files import JavaObject
from headrace.tables.storage import Storage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_AT_ONCE = 2
MOST_DELETED = 0.1
"""Which part of a file's rows may be deleted in it before the others are written anew."""


def deletes_of(task: JavaObject) -> list[JavaObject]:
    """Gives back the delete files that belong to a scan task's data file."""
    found = task.deletes()
    return [found.get(index) for index in range(found.size())]


def deletes_of_one_file(spark: SparkSession, tasks: Sequence[JavaObject]) -> list[JavaObject]:
    """Gives back the delete files that are of no use without the data file of one of the tasks: no other's rows are in them."""
    content = iceberg_class(spark, "util.ContentFileUtil")
    return [each for task in tasks for each in deletes_of(task) if content.isFileScoped(each)]


def stage_deletes(
    spark: SparkSession,
    table: Table,
    tasks: Mapping[str, JavaObject],
    *,
    folder: str,
    positions: Mapping[str, pa.Array],
) -> dict[str, JavaObject]:
    """Gives back for each data file a delete file with these positions, which are in order. Nothing refers to them yet.

    `tasks` are scan tasks by their file's path.
    """
    if not positions:
        return {}
    name, storage = uuid.uuid4().hex, Storage.of(table.io.properties)

    def write(numbered: tuple[int, tuple[str, pa.Array]]) -> tuple[str, int]:
        number, (path, each) = numbered
        uri = f"{folder}/part-{name}-{number}-deletes.parquet"
        return uri, write_positions(uri, path, each, storage=storage)

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        written = dict(zip(positions, pool.map(write, enumerate(positions.items())), strict=True))
    parser, reader = iceberg_class(spark, "ContentFileParser"), iceberg_class(spark, "util.JsonUtil").mapper()
    staged = {}
    for path, (uri, size) in written.items():
        file, spec = tasks[path].file(), tasks[path].spec()
        made = _described(json.loads(parser.toJson(file, spec)), uri=uri, size=size, positions=positions[path])
        staged[path] = parser.fromJson(reader.readTree(json.dumps(made)), spec)
    return staged


def _described(data_file: Mapping[str, object], *, uri: str, size: int, positions: pa.Array) -> dict[str, object]:
    """Gives back the delete file of one data file as Iceberg writes both in JSON, in the data file's partition.

    All of it is known, and Java would take many calls and open the file again to find it.
    """
    path, count, ids = str(data_file["file-path"]), len(positions), [PATH_ID, POSITION_ID]

    def bounds(position: int) -> dict[str, object]:
        # Readers find a file's deletes by the bounds of the path, so these must be whole.
        return {"keys": ids, "values": [path.encode().hex().upper(), struct.pack("<q", position).hex().upper()]}

    return {
        **{key: data_file[key] for key in ("spec-id", "partition", "file-format") if key in data_file},
        "content": "position-deletes",
        "file-path": uri,
        "record-count": count,
        "file-size-in-bytes": size,
        "value-counts": {"keys": ids, "values": [count, count]},
        "null-value-counts": {"keys": ids, "values": [0, 0]},
        "lower-bounds": bounds(positions[0].as_py()),
        "upper-bounds": bounds(positions[-1].as_py()),
        "referenced-data-file": path,
    }
