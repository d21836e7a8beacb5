"""A DuckDB that reads Iceberg tables, with its extensions out of packages: nothing is downloaded."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb
import duckdb_extension_avro
import duckdb_extension_iceberg


@contextmanager
def open_duckdb(*, reads_iceberg: bool = True) -> Iterator[duckdb.DuckDBPyConnection]:
    """Gives a connection to a database of its own in memory, in which times are UTC."""
    connection = duckdb.connect(config={"autoinstall_known_extensions": "false"})
    try:
        for package in (duckdb_extension_avro, duckdb_extension_iceberg) if reads_iceberg else ():
            extension = next(Path(package.__file__).parent.glob("extensions/*/*.duckdb_extension"))
            connection.execute(f"LOAD '{extension}'")
        connection.execute("SET TimeZone = 'UTC'")
        yield connection
    finally:
        connection.close()


def quote_text(text: str) -> str:
    """Gives back a text as SQL has it."""
    return "'" + text.replace("'", "''") + "'"


def quote_name(name: str) -> str:
    """Gives back a name as SQL has it, whatever is in it."""
    return '"' + name.replace('"', '""') + '"'
