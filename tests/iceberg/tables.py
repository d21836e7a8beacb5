"""Small Iceberg tables, and changes to them by other writers."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

from headrace.iceberg.files.storage import Storage
from headrace.iceberg.files.write import TableFiles, TableFormat


def write_files(table: Table, *, rows: int, first: int = 0) -> Sequence[DataFile]:
    """Write a data file of `n = first, first + 1, …` that no snapshot refers to yet."""
    table_format = TableFormat(table.schema(), table.spec())
    storage = Storage.of(table.io.properties)
    files = TableFiles(table_format, folder=f"{table.location()}/output", name=str(uuid.uuid4()), storage=storage)
    files.write(pa.table({"n": pa.array(range(first, first + rows), pa.int64())}, schema=table_format.arrow_schema))
    return files.close()


def add_files(table: Table, *, rows: int = 2) -> Table:
    """Append rows as someone would who knows nothing of ledgers, such as a compaction."""
    table.append(pa.table({"n": pa.array([-1] * rows, pa.int64())}))
    return table


def roll_back(catalog: Catalog, table: Table, snapshot_id: int) -> Table:
    fresh = catalog.load_table(table.name())
    fresh.manage_snapshots().set_current_snapshot(snapshot_id).commit()
    return catalog.load_table(table.name())


def numbers(catalog: Catalog, table: Table) -> list[int]:
    return sorted(catalog.load_table(table.name()).scan().to_arrow()["n"].to_pylist())
