"""Open DuckDB with the extensions for Iceberg tables, loaded from installed packages: nothing is downloaded."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from urllib.parse import urlsplit

import duckdb
import duckdb_extension_avro
import duckdb_extension_aws
import duckdb_extension_httpfs
import duckdb_extension_iceberg

from headrace.iceberg.files.storage import DISK, Storage


@contextmanager
def open_duckdb(*, reads_iceberg: bool = True, storage: Storage = DISK) -> Iterator[duckdb.DuckDBPyConnection]:
    """Yield a connection to a new in-memory database, and close it at the end."""
    connection = connect_duckdb(reads_iceberg=reads_iceberg, storage=storage)
    try:
        yield connection
    finally:
        connection.close()


def connect_duckdb(*, reads_iceberg: bool = True, storage: Storage = DISK) -> duckdb.DuckDBPyConnection:
    """Return a connection to a new in-memory database in UTC, with access to the object store.

    Extension signatures are not checked: the extensions are files of installed packages like all other code, and the check
    reads 60 MB for each connection, which took longer than most queries.
    """
    connection = duckdb.connect(config={"autoinstall_known_extensions": "false", "allow_unsigned_extensions": "true"})
    try:
        if reads_iceberg:
            _load(connection, duckdb_extension_avro)
            _load(connection, duckdb_extension_iceberg)
            if storage != DISK:
                _open_store(connection, dict(storage.options))
        connection.execute("SET TimeZone = 'UTC'")
    except BaseException:
        connection.close()
        raise
    return connection


def quote_text(text: str) -> str:
    """Return a text as a SQL string literal."""
    return "'" + text.replace("'", "''") + "'"


def quote_name(name: str) -> str:
    """Return a name as a quoted SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def _load(connection: duckdb.DuckDBPyConnection, package: ModuleType) -> None:
    extension = next(Path(str(package.__file__)).parent.glob("extensions/*/*.duckdb_extension"))
    connection.execute(f"LOAD {quote_text(str(extension))}")


def _open_store(connection: duckdb.DuckDBPyConnection, options: dict[str, str]) -> None:
    """Create DuckDB's secret for the object store. Without keys it uses the AWS credential chain."""
    _load(connection, duckdb_extension_httpfs)
    endpoint = urlsplit(options.get("s3.endpoint", ""))
    is_virtual = options.get("s3.force-virtual-addressing") == "true"
    parameters = {
        "REGION": options.get("s3.region", ""),
        "ENDPOINT": endpoint.netloc + endpoint.path.rstrip("/"),
        "URL_STYLE": "" if is_virtual else "path",
        "KEY_ID": options.get("s3.access-key-id", ""),
        "SECRET": options.get("s3.secret-access-key", ""),
        "SESSION_TOKEN": options.get("s3.session-token", ""),
    }
    if not parameters["KEY_ID"]:
        _load(connection, duckdb_extension_aws)
        parameters["PROVIDER"] = "credential_chain"
    clauses = [f"{name} {quote_text(value)}" for name, value in parameters.items() if value]
    clauses.append(f"USE_SSL {str(endpoint.scheme != 'http').lower()}")
    connection.execute(f"CREATE SECRET (TYPE s3, {', '.join(clauses)})")
