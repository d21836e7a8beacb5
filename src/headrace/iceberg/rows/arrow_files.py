"""Read data files as Arrow, without a Spark job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.table import Table

from headrace.iceberg.commits.build_phases import phase
from headrace.iceberg.files.staged_rows import fit_columns

_AT_ONCE = 2


@phase("fetch")
def read_arrow(table: Table, paths: Sequence[str], *, columns: Sequence[str]) -> list[pa.Table]:
    """Return these columns of data files, one table for each file, with its rows in file order, including deleted ones.

    Columns have the table's current types; a column that was added after a file was written is null.
    """
    schema = _schema_of(table, columns)

    def read(path: str) -> pa.Table:
        with table.io.new_input(path).open() as stream:
            file = pq.ParquetFile(stream)
            return fit_columns(file.read(columns=_present(file, columns), use_threads=False), schema)

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return list(pool.map(read, paths))


@phase("fetch")
def read_row_groups(table: Table, rows: Mapping[str, pa.Array], *, columns: Sequence[str]) -> dict[str, dict[int, pa.Table]]:
    """Return these columns of the row groups that contain the given positions of each data file, by their first position.

    Columns have the table's current types, as in `read_arrow`.
    """
    schema = _schema_of(table, columns)

    def read(wanted: tuple[str, pa.Array]) -> dict[int, pa.Table]:
        path, positions = wanted
        groups, first = {}, 0
        with table.io.new_input(path).open() as stream:
            file = pq.ParquetFile(stream)
            for group in range(file.metadata.num_row_groups):
                end = first + file.metadata.row_group(group).num_rows
                if pc.any(pc.and_(pc.greater_equal(positions, first), pc.less(positions, end))).as_py():
                    group_rows = file.read_row_group(group, columns=_present(file, columns), use_threads=False)
                    groups[first] = fit_columns(group_rows, schema)
                first = end
        return groups

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return dict(zip(rows, pool.map(read, rows.items()), strict=True))


def with_constants(rows: pa.Table, values: Mapping[str, int]) -> pa.Table:
    """Return the rows with additional constant columns of type long."""
    for name, value in values.items():
        rows = rows.append_column(name, pa.repeat(pa.scalar(value, pa.int64()), rows.num_rows))
    return rows


def _present(file: pq.ParquetFile, columns: Sequence[str]) -> list[str]:
    """Return the columns that the file has."""
    names = {*file.schema_arrow.names}
    return [name for name in columns if name in names]


def _schema_of(table: Table, columns: Sequence[str]) -> pa.Schema:
    schema = table.schema().as_arrow()
    return pa.schema([schema.field(name) for name in columns])
