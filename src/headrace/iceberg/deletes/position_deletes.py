"""Write position deletes with Arrow: at most one delete file for each data file."""

from __future__ import annotations

import struct
import uuid
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.table import FileScanTask, Table

from headrace.iceberg.commits.build_phases import phase
from headrace.iceberg.files.manifests import PATH_ID, POSITION_ID, target_of
from headrace.iceberg.files.staged_rows import data_folder
from headrace.iceberg.files.storage import Storage, new_file

_AT_ONCE = 2
_ID = "PARQUET:field_id"
SCHEMA = pa.schema(
    [
        pa.field("file_path", pa.string(), nullable=False, metadata={_ID: str(PATH_ID)}),
        pa.field("pos", pa.int64(), nullable=False, metadata={_ID: str(POSITION_ID)}),
    ]
)
"""The columns and field ids that Iceberg's specification gives a position-delete file."""


@dataclass(frozen=True)
class StagedDeletes:
    """Uncommitted delete files, each with its data file, and the delete files that they replace."""

    files: tuple[tuple[DataFile, DataFile], ...] = ()
    outdated: tuple[DataFile, ...] = ()


@phase("write")
def stage_position_deletes(table: Table, positions: Sequence[tuple[FileScanTask, pa.Array]]) -> StagedDeletes:
    """Write delete files with these positions and the positions already deleted in the same data files.

    Each data file has one task, with the delete files that apply to it. Positions may be unordered and repeated. A data file
    without newly deleted rows gets no delete file. A delete file that covers several data files stays, and its positions are
    not deleted twice, so that the table's row counts stay correct.
    """
    name, storage, folder = uuid.uuid4().hex, Storage.of(table.io.properties), data_folder(table)

    def stage(numbered: tuple[int, tuple[FileScanTask, pa.Array]]) -> DataFile | None:
        number, (task, new) = numbered
        _check(task, new)
        path, own = task.file.file_path, own_deletes([task])
        before = read_positions(table, path, [file.file_path for file in own])
        shared = read_positions(table, path, [file.file_path for file in task.delete_files if file not in own])
        everything = _sorted(pa.concat_arrays([before, new.cast(pa.int64())]))
        everything = everything.filter(pc.invert(pc.is_in(everything, shared)))
        if len(everything) == len(before):
            return None
        uri = f"{folder}/part-{name}-{number}-deletes.parquet"
        return _describe(task.file, uri=uri, size=write_positions(uri, path, everything, storage=storage), positions=everything)

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        staged = list(zip(positions, pool.map(stage, enumerate(positions)), strict=True))
    tasks = [task for (task, _), deletes in staged if deletes is not None]
    return StagedDeletes(
        tuple((task.file, deletes) for (task, _), deletes in staged if deletes is not None), tuple(own_deletes(tasks))
    )


def own_deletes(tasks: Sequence[FileScanTask]) -> list[DataFile]:
    """Return the delete files that apply to the data file of one of the tasks alone: they are removed with it."""
    return [file for task in tasks for file in task.delete_files if target_of(file) == task.file.file_path]


def read_positions(table: Table, path: str, deletes: Sequence[str]) -> pa.Array:
    """Return the positions in a data file that these delete files delete, in ascending order."""
    positions = [pa.array([], pa.int64())]
    for uri in deletes:
        with table.io.new_input(uri).open() as stream:
            rows = pq.read_table(stream, schema=SCHEMA, use_threads=False)
        positions.append(rows.filter(pc.equal(rows["file_path"], path))["pos"].combine_chunks())
    return _sorted(pa.concat_arrays(positions))


def write_positions(uri: str, path: str, positions: pa.Array, *, storage: Storage) -> int:
    """Write a delete file for the data file at `path`, with ascending `positions`. Return its size in bytes."""
    rows = pa.Table.from_arrays([pa.repeat(path, len(positions)), positions], schema=SCHEMA)
    with new_file(uri, storage=storage) as stream:
        pq.write_table(rows, stream, compression="zstd", compression_level=1, store_schema=False)
        return int(stream.tell())


def _check(task: FileScanTask, positions: pa.Array) -> None:
    bounds = pc.min_max(positions).as_py() if len(positions) else {"min": 0, "max": 0}
    if positions.null_count or bounds["min"] < 0 or bounds["max"] >= task.file.record_count:
        raise ValueError(f"position out of range: {task.file.file_path} has {task.file.record_count} rows")


def _sorted(positions: pa.Array) -> pa.Array:
    unique = pc.unique(positions)
    return unique.take(pc.sort_indices(unique))


def _describe(data_file: DataFile, *, uri: str, size: int, positions: pa.Array) -> DataFile:
    """Return the Iceberg entry of a delete file, in the partition of its data file.

    Readers match deletes to a data file by the bounds of the path, so these are not truncated. PyIceberg's manifests of version
    2 have no field `referenced_data_file`; equal bounds have the same meaning.
    """
    path, count = data_file.file_path.encode(), len(positions)
    deletes = DataFile.from_args(
        content=DataFileContent.POSITION_DELETES,
        file_path=uri,
        file_format=FileFormat.PARQUET,
        partition=data_file.partition,
        record_count=count,
        file_size_in_bytes=size,
        value_counts={PATH_ID: count, POSITION_ID: count},
        null_value_counts={PATH_ID: 0, POSITION_ID: 0},
        lower_bounds={PATH_ID: path, POSITION_ID: struct.pack("<q", positions[0].as_py())},
        upper_bounds={PATH_ID: path, POSITION_ID: struct.pack("<q", positions[-1].as_py())},
    )
    deletes.spec_id = data_file.spec_id
    return deletes
