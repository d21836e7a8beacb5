"""Read rows of a lake table in key order or by keys, in bounded memory."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
from pyiceberg.table import Table

from headrace.iceberg.files.storage import Storage
from headrace.iceberg.rows.duck import open_duckdb, quote_name, quote_text
from headrace.operations.compare.source_tables import Key

LSN = "_lsn"
_MEMORY = "512MB"
_ROWS_AT_ONCE = 1_000
_WANTED = "wanted"


@dataclass(frozen=True)
class LakeRow:
    """A row of the lake: the requested values, and the LSN of its last change."""

    values: tuple[Any, ...]
    lsn: int


def rows_in_order(table: Table, *, columns: Sequence[str], keys: Sequence[str], scratch: Path) -> Iterator[LakeRow]:
    """Yield the rows in key order. The sort spills to disk, in `scratch`, beyond a fixed amount of memory."""
    names = ", ".join(quote_name(name) for name in (*columns, LSN))
    order = ", ".join(quote_name(key) for key in keys)
    with _opened(table, scratch) as connection:
        yield from _read(connection, f"SELECT {names} FROM {_scan(table)} ORDER BY {order}")


def find_rows(
    table: Table, *, columns: Sequence[str], keys: Sequence[str], wanted: Sequence[Key], scratch: Path
) -> Iterator[LakeRow]:
    """Yield the rows of the `wanted` keys, in any order."""
    if not wanted:
        return
    names = ", ".join(f"lake.{quote_name(name)}" for name in (*columns, LSN))
    same = " AND ".join(f"lake.{quote_name(key)} = {_WANTED}.{quote_name(key)}" for key in keys)
    with _opened(table, scratch) as connection:
        connection.register(_WANTED, pa.table({name: [key[index] for key in wanted] for index, name in enumerate(keys)}))
        yield from _read(connection, f"SELECT {names} FROM {_scan(table)} AS lake JOIN {_WANTED} ON {same}")


def _read(connection: duckdb.DuckDBPyConnection, query: str) -> Iterator[LakeRow]:
    for batch in connection.execute(query).to_arrow_reader(_ROWS_AT_ONCE):
        for values in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            yield LakeRow(values[:-1], values[-1] or 0)


def _scan(table: Table) -> str:
    return f"iceberg_scan({quote_text(table.metadata_location)})"


@contextmanager
def _opened(table: Table, scratch: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    scratch.mkdir(parents=True, exist_ok=True)
    storage = Storage.of(table.io.properties)
    with tempfile.TemporaryDirectory(dir=scratch) as folder, open_duckdb(storage=storage) as connection:
        connection.execute(f"SET memory_limit = {quote_text(_MEMORY)}")
        connection.execute(f"SET temp_directory = {quote_text(folder)}")
        yield connection
