"""Written by headrace export dbt: creates views in dbt-duckdb on the current snapshots of the lake's tables.

dbt loads this file as a plugin of the profile. It does not need Headrace: the catalog has the location of each table's
metadata, and DuckDB's iceberg extension reads it. `HEADRACE_HOME` and `HEADRACE_CATALOG_URI` have the same meaning as in
Headrace.
"""

from __future__ import annotations

import importlib
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from dbt.adapters.duckdb.plugins import BasePlugin

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_SQLITE = "sqlite:///"


class Plugin(BasePlugin):  # type: ignore[misc]
    """The plugin of dbt-duckdb. `home` is Headrace's home, relative to this file; `tables` are the tables that the models read.

    `hidden` maps tables to the columns that Headrace added and models don't read.
    """

    def initialize(self, plugin_config: dict[str, object]) -> None:
        here = Path(__file__).resolve().parent
        home = os.environ.get("HEADRACE_HOME") or here / str(plugin_config.get("home", ".headrace"))
        self.uri = os.environ.get("HEADRACE_CATALOG_URI") or f"{_SQLITE}{Path(home).resolve() / 'catalog.db'}"
        self.tables = [str(name) for name in plugin_config.get("tables", [])]  # type: ignore[attr-defined]
        self.hidden: dict[str, list[str]] = plugin_config.get("hidden", {})  # type: ignore[assignment]

    def configure_connection(self, conn: DuckDBPyConnection) -> None:
        _load_extensions(conn)
        for name, location in _locations(self.uri, self.tables):
            *namespaces, table = name.split(".")
            namespace = "__".join(namespaces)
            columns = [row[0] for row in conn.execute("DESCRIBE SELECT * FROM iceberg_scan(?)", [location]).fetchall()]
            shown = ", ".join(_quoted(column) for column in columns if column not in self.hidden.get(name, []))
            path = location.replace("'", "''")
            conn.execute(f"CREATE SCHEMA IF NOT EXISTS {_quoted(namespace)}")
            conn.execute(
                f"CREATE OR REPLACE VIEW {_quoted(namespace)}.{_quoted(table)} AS SELECT {shown} FROM iceberg_scan('{path}')"
            )


def _locations(uri: str, tables: list[str]) -> Iterator[tuple[str, str]]:
    """Yield the existing tables, each with its current metadata file."""
    if not uri.startswith(_SQLITE):
        from pyiceberg.catalog.sql import SqlCatalog

        catalog = SqlCatalog("headrace", uri=uri)
        yield from ((name, catalog.load_table(name).metadata_location) for name in tables if catalog.table_exists(name))
        return
    path = Path(uri[len(_SQLITE) :])
    if not path.exists():
        raise FileNotFoundError(f"Catalog not found: {path}. Land and build first, or set HEADRACE_HOME.")
    select = "SELECT metadata_location FROM iceberg_tables WHERE table_namespace = ? AND table_name = ?"
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True, timeout=30)) as connection:
        for name in tables:
            row = connection.execute(select, name.rsplit(".", 1)).fetchone()
            if row:
                yield name, row[0]


def _load_extensions(conn: DuckDBPyConnection) -> None:
    """Load the extensions from their Python packages if these are installed. Otherwise DuckDB downloads them."""
    for name in ("avro", "iceberg"):
        try:
            package = importlib.import_module(f"duckdb_extension_{name}")
        except ImportError:
            conn.execute(f"INSTALL {name}")
            conn.execute(f"LOAD {name}")
        else:
            file = next(Path(str(package.__file__)).parent.glob("extensions/*/*.duckdb_extension"))
            conn.execute(f"LOAD '{file}'")


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
