"""Run SQL on the lake with DuckDB, which reads the current snapshots of the Iceberg tables and applies deletes."""

from __future__ import annotations

from collections.abc import Callable

import duckdb
import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from headrace.iceberg.catalog.tables import list_tables
from headrace.iceberg.files.storage import Storage
from headrace.iceberg.rows.duck import open_duckdb, quote_name, quote_text
from headrace.iceberg.schema.added_columns import hidden_columns
from headrace.serving.sql.duck_query import SourceTable, execute, plan_query

ReadTable = Callable[[duckdb.DuckDBPyConnection, Table], str]
"""Returns the FROM expression with which DuckDB reads a table."""


def run_query(catalog: Catalog, sql: str, *, read: ReadTable | None = None) -> pa.Table:
    """Return the result of one SELECT, which names tables with their namespaces and can't change the lake.

    DuckDB gets the text only after the policy has accepted it and the connection is sandboxed. By default DuckDB reads the
    metadata file that the catalog names. Raises a QueryError for a query that is not allowed or fails.
    """
    planned = plan_query(sql, list_tables(catalog))
    with open_duckdb(reads_iceberg=read is None, storage=Storage.of(catalog.properties)) as connection:
        sources = {}
        for name in planned.tables:
            table = catalog.load_table(name)
            source = scan_source(table)
            sources[name] = source if read is None else SourceTable(read(connection, table), source.folders)
        return execute(connection, planned, sources)


def scan_source(table: Table) -> SourceTable:
    """Return how DuckDB reads a table from the metadata file that the catalog names."""
    folders = (table.location(), table.properties.get("write.data.path", table.location()))
    scan = f"iceberg_scan({quote_text(table.metadata_location)})"
    hidden = ", ".join(map(quote_name, sorted(hidden_columns(table))))
    return SourceTable(f"(SELECT * EXCLUDE ({hidden}) FROM {scan})" if hidden else scan, folders)
