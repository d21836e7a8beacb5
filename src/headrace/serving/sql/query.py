"""Run SQL on the lake with DuckDB, which reads snapshots of the Iceberg tables and applies deletes."""

from __future__ import annotations

from collections.abc import Callable

import duckdb
import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from headrace.iceberg.catalog.tables import list_tables
from headrace.iceberg.files.storage import Storage
from headrace.iceberg.rows.duck import open_duckdb, quote_name, quote_text
from headrace.iceberg.schema.added_columns import hidden_columns, shown_columns
from headrace.iceberg.snapshots.as_of import as_of, resolve_snapshots
from headrace.iceberg.snapshots.moments import Moment
from headrace.serving.sql.duck_query import SourceTable, execute, plan_query

ReadTable = Callable[[duckdb.DuckDBPyConnection, Table], str]
"""Returns the FROM expression with which DuckDB reads a table."""


def run_query(catalog: Catalog, sql: str, *, at: Moment | None = None, read: ReadTable | None = None) -> pa.Table:
    """Return the result of one SELECT, which names tables with their namespaces and can't change the lake.

    Tables are read as they are, or as of `at`. DuckDB gets the text only after the policy has accepted it and the connection is
    sandboxed. By default DuckDB reads the metadata file that the catalog names. Raises a QueryError for a query that is not
    allowed or fails.
    """
    planned = plan_query(sql, list_tables(catalog))
    snapshots = resolve_snapshots(catalog, planned.tables, at)
    with open_duckdb(reads_iceberg=read is None, storage=Storage.of(catalog.properties)) as connection:
        sources = {}
        for name in planned.tables:
            table = as_of(catalog.load_table(name), snapshots.get(name))
            source = scan_source(table, snapshots.get(name))
            sources[name] = source if read is None else SourceTable(read(connection, table), source.folders)
        return execute(connection, planned, sources)


def scan_source(table: Table, snapshot_id: int | None = None) -> SourceTable:
    """Return how DuckDB reads a table, or one of its snapshots, from the metadata file that the catalog names.

    With a snapshot id, `table` is the table as of that snapshot.
    """
    folders = (table.location(), table.properties.get("write.data.path", table.location()))
    if snapshot_id is not None:
        shown = ", ".join(map(quote_name, shown_columns(table)))
        scan = f"iceberg_scan({quote_text(table.metadata_location)}, snapshot_from_id => {snapshot_id})"
        return SourceTable(f"(SELECT {shown} FROM {scan})", folders)
    scan = f"iceberg_scan({quote_text(table.metadata_location)})"
    hidden = ", ".join(map(quote_name, sorted(hidden_columns(table))))
    return SourceTable(f"(SELECT * EXCLUDE ({hidden}) FROM {scan})" if hidden else scan, folders)
