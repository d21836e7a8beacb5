"""Query tables with PyIceberg, which reads them completely into memory, and DuckDB, which runs the SQL on Arrow."""

from __future__ import annotations

import duckdb
import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from headrace.iceberg.rows.duck import quote_name
from headrace.iceberg.schema.added_columns import shown_columns
from headrace.iceberg.snapshots.moments import Moment
from headrace.serving.sql.engines.failures import storage_error
from headrace.serving.sql.query import run_query


def ask(catalog: Catalog, sql: str, *, at: Moment | None = None) -> pa.Table:
    """Return the result of one SELECT in DuckDB's SQL."""
    return run_query(catalog, sql, at=at, read=_scan)


def _scan(connection: duckdb.DuckDBPyConnection, table: Table) -> str:
    """Scan a table with PyIceberg, which applies deletes, and return the name under which DuckDB can read it."""
    name = ".".join(table.name())
    try:
        connection.register(name, table.scan(selected_fields=shown_columns(table)).to_arrow())
    except OSError as error:
        raise storage_error("PyIceberg", str(error)) from error
    return quote_name(name)
