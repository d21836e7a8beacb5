"""Write rows into uncommitted data files with Arrow."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

from headrace.iceberg.commits.build_phases import phase
from headrace.iceberg.files.storage import Storage
from headrace.iceberg.files.write import TableFiles, Written, format_of

_AT_ONCE = 2


@phase("write")
def stage_rows(table: Table, rows: Sequence[pa.Table], *, written: Written | None = None) -> list[DataFile]:
    """Write the rows to uncommitted data files, at least one for each part and partition.

    Missing columns become null. `written` is called with every small file and its rows, from any thread.
    """
    table_format = format_of(table)
    folder, name, storage = data_folder(table), uuid.uuid4().hex, Storage.of(table.io.properties)

    def write(numbered: tuple[int, pa.Table]) -> Sequence[DataFile]:
        number, part = numbered
        files = TableFiles(table_format, folder=folder, name=f"{name}-{number}", storage=storage, written=written)
        try:
            files.write(fit_columns(part, table_format.arrow_schema))
            return files.close()
        finally:
            files.abort()

    parts = [part for part in rows if part.num_rows]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return [file for files in pool.map(write, enumerate(parts)) for file in files]


def data_folder(table: Table) -> str:
    return f"{table.location()}/data"


def fit_columns(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return the rows with the schema's columns, order and types; missing columns are null."""
    known = set(rows.column_names)
    columns = [rows[field.name] if field.name in known else pa.nulls(rows.num_rows, field.type) for field in schema]
    return pa.Table.from_arrays(columns, names=schema.names).cast(schema)
