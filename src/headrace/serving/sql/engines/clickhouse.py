"""Query tables with ClickHouse in this process (chdb), which reads the metadata files that the catalog names.

Its arrays and maps can't be null, so a null becomes an empty one. It has one type, String, for text and bytes.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from headrace.errors import QueryError
from headrace.iceberg.files.storage import Storage, local_path
from headrace.serving.sql.engines.clickhouse_tables import store_settings, table_engine
from headrace.serving.sql.engines.failures import query_error, storage_error
from headrace.serving.sql.question import Question

if TYPE_CHECKING:
    from chdb.state.sqlitelike import Connection

_SETTINGS: Mapping[str, str] = {
    "session_timezone": "'UTC'",
    "output_format_arrow_string_as_string": "0",  # a String may hold any bytes
}
_STORED = "tables behind views"
"""The database of tables that queries read through a view, because they have hidden columns or are read as of a snapshot. The
blanks keep it distinct from every namespace."""
_AWAY = "(S3_ERROR)"
_CODE = re.compile(r"^Code: \d+\. DB::\w+: ")
_KIND = re.compile(r"\.? \([A-Z_]+\)\s*$")
_SCOPE = re.compile(r"\.? In scope .*$", re.DOTALL)


def ask(catalog: Catalog, question: Question) -> pa.Table:
    """Return the result of one SELECT in ClickHouse's SQL."""
    tables = {name: catalog.load_table(name) for name in question.tables}
    storage = Storage.of(catalog.properties)
    folder = _common_folder(tables.values())
    with TemporaryDirectory() as empty, _inside(folder or Path(empty)), _connect(storage) as connection:
        try:
            for name, table in tables.items():
                _make_table(connection, name, question, table_engine(table.metadata_location, storage))
            answer = connection.query(question.rename(lambda mention: _quote(mention.table)), "ArrowStream").bytes()
        except RuntimeError as error:  # chdb raises it for every error
            message = storage.without_secrets(str(error))
            raise (storage_error if _AWAY in message else query_error)("ClickHouse", _strip_codes(message)) from error
    with pa.ipc.open_stream(answer) as reader:
        return _with_text(reader.read_all())


@contextmanager
def _connect(storage: Storage) -> Iterator[Connection]:
    """Yield an empty ClickHouse that exists for the duration of the block."""
    try:
        from chdb.state.sqlitelike import Connection
    except ImportError as error:
        raise QueryError(
            "ClickHouse is not installed",
            where="--engine clickhouse",
            next_step="Run: pip install 'headrace[clickhouse]'   (180 MB, 530 MB on disk). Other engines need nothing more.",
        ) from error
    connection = Connection(":memory:")
    try:
        for name, value in {**_SETTINGS, **store_settings(storage)}.items():
            connection.query(f"SET {name} = {value}")
        yield connection
    finally:
        connection.close()


@contextmanager
def _inside(folder: Path) -> Iterator[None]:
    """Change the working folder of this process. ClickHouse reads files only there, and has no setting for it."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def _common_folder(tables: Iterable[Table]) -> Path | None:
    """Return the common folder of these tables' files, to which a query is restricted; None if none is on local disk."""
    locations = (place for table in tables for place in (table.location(), table.properties.get("write.data.path", "")))
    folders = [path for path in (local_path(place) for place in locations if place) if path]
    return Path(os.path.commonpath(folders)) if folders else None


def _make_table(connection: Connection, name: str, question: Question, engine: str) -> None:
    """Create a table of the lake; with hidden columns or as of a snapshot, a view of its visible columns."""
    columns, snapshot = question.columns.get(name), question.snapshots.get(name)
    is_view = columns is not None
    stored = f"{_STORED}.{name.replace('.', '/')}" if is_view else name
    for table_name in dict.fromkeys((name, stored)):
        database, _, _ = _quote(table_name).rpartition(".`")
        connection.query(f"CREATE DATABASE IF NOT EXISTS {database}")
    connection.query(f"CREATE TABLE {_quote(stored)} ENGINE = {engine}")
    if columns:
        shown = ", ".join(map(_quote_column, columns.shown))
        version = "" if snapshot is None else f" SETTINGS iceberg_snapshot_id = {snapshot:d}"  # of this view only
        connection.query(f"CREATE VIEW {_quote(name)} AS SELECT {shown} FROM {_quote(stored)}{version}")


def _quote_column(name: str) -> str:
    return "`" + name.replace("\\", "\\\\").replace("`", "\\`") + "`"


def _quote(name: str) -> str:
    """Return a table's name in ClickHouse: two parts, of which the first has all namespaces."""
    namespace, _, table = name.rpartition(".")
    return f"`{namespace}`.`{table}`"


def _with_text(result: pa.Table) -> pa.Table:
    """Return the result with Strings as text; a column whose values are not all text stays bytes."""
    columns = []
    for column in result.columns:
        try:
            columns.append(column.cast(_as_text(column.type)))
        except pa.ArrowInvalid:
            columns.append(column)
    return pa.table(columns, names=result.column_names)


def _as_text(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_binary(kind):
        return pa.string()
    if pa.types.is_list(kind):
        return pa.list_(_as_text(kind.value_type))
    if pa.types.is_map(kind):
        return pa.map_(_as_text(kind.key_type), _as_text(kind.item_type))
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_as_text(field.type)) for field in kind])
    return kind


def _strip_codes(message: str) -> str:
    """Return a message of ClickHouse without its codes and the query."""
    return _SCOPE.sub("", _KIND.sub("", _CODE.sub("", message)))
