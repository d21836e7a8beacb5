"""Find and register tables that are in the warehouse but not in the catalog: the catalog was emptied, lost or replaced."""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from pyarrow import fs
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NamespaceAlreadyExistsError, TableAlreadyExistsError, ValidationError
from pyiceberg.io import load_file_io
from pyiceberg.serializers import FromInputFile
from pyiceberg.table.metadata import TableMetadata
from sqlalchemy.exc import IntegrityError

from headrace.errors import NotFoundError, SettingsError
from headrace.iceberg.files.row_counts import rows_after
from headrace.iceberg.files.storage import Storage, list_files
from headrace.plurals import count_of
from headrace.spec.model.pipeline import TableName

_SUFFIX = ".metadata.json"
_VERSION = re.compile(r"v?(\d+)[-.]")
_LONGEST_NAME = 3  # a namespace of two words, and the table
_CREATED_WITHIN_SECONDS = 2.0
"""Another application writes a new table's metadata a moment before it adds the table to the catalog."""


@dataclass(frozen=True)
class UnregisteredTable:
    """A table in the warehouse that the catalog doesn't list, as its newest metadata file describes it."""

    name: TableName
    metadata_location: str
    rows: int


def check_unregistered(catalog: Catalog, name: TableName, location: str) -> None:
    """Raise a SettingsError if the location of a new table already holds a table with data: its rows would be landed again.

    A table that another application is creating, and one that was created and never written to, are allowed.
    """
    newest = _newest_metadata(catalog, location)
    if newest is None or not newest[1].snapshots:
        return
    deadline = time.monotonic() + _CREATED_WITHIN_SECONDS
    while time.monotonic() < deadline:
        if catalog.table_exists(str(name)):
            return
        time.sleep(0.1)
    raise SettingsError(
        f"the catalog has no table {name}, but {location} holds one with {count_of(_count_rows(newest[1]), 'row')}: "
        "the catalog was emptied or replaced, or the table was dropped",
        where=f"table {name}",
        next_step="To add the warehouse's tables to the catalog and continue from their data, run: headrace register\n"
        "To start over with an empty table, move the folder away first. If this is the wrong catalog, set catalog.uri.",
    )


def find_unregistered(catalog: Catalog, warehouse: str) -> tuple[UnregisteredTable, ...]:
    """Return the tables with data in the warehouse that the catalog lacks, sorted by name."""
    tables = []
    for name in sorted(_tables_in(Storage.of(catalog.properties), warehouse), key=str):
        location = "/".join((warehouse.rstrip("/"), *name.parts))
        newest = None if catalog.table_exists(str(name)) else _newest_metadata(catalog, location)
        if newest is not None and newest[1].snapshots:
            tables.append(UnregisteredTable(name, newest[0], _count_rows(newest[1])))
    return tuple(tables)


def register_tables(catalog: Catalog, warehouse: str, wanted: Collection[TableName] = ()) -> tuple[UnregisteredTable, ...]:
    """Add the warehouse's tables that the catalog lacks, all or only the `wanted` ones, and return them.

    Idempotent by name: a table that the catalog has is left alone. Raises NotFoundError if the warehouse has no wanted table.
    """
    unregistered = find_unregistered(catalog, warehouse)
    known = {table.name for table in unregistered}
    missing = [name for name in wanted if name not in known and not (name.namespace and catalog.table_exists(str(name)))]
    if missing:
        raise NotFoundError(
            f"not found: a table with data in {'/'.join((warehouse.rstrip('/'), *missing[0].parts))}",
            where=f"table {missing[0]}",
            next_step="Check the name and the warehouse. To see the warehouse's location, run: headrace doctor",
        )
    chosen = tuple(table for table in unregistered if not wanted or table.name in wanted)
    for table in chosen:
        _create_namespace(catalog, table.name)
        try:
            catalog.register_table(str(table.name), table.metadata_location)
        except TableAlreadyExistsError:
            pass  # another application has registered it meanwhile
    return chosen


def _newest_metadata(catalog: Catalog, location: str) -> tuple[str, TableMetadata] | None:
    """Return the newest metadata file of a folder and its content.

    Commits that lost a race leave files of the same version; the last one written wins. Each describes a whole table, with its
    ledger, so landing continues correctly from either. Incomplete files of a crashed application are skipped.
    """
    versions: dict[int, list[str]] = {}
    for uri in list_files(f"{location}/metadata", suffix=_SUFFIX, storage=Storage.of(catalog.properties)):
        match = _VERSION.match(uri.rsplit("/", 1)[1])
        if match:
            versions.setdefault(int(match[1]), []).append(uri)
    for version in sorted(versions, reverse=True):
        files = [(uri, metadata) for uri in versions[version] if (metadata := _read_metadata(catalog, uri)) is not None]
        if files:
            return max(files, key=lambda file: file[1].last_updated_ms)
    return None


def _read_metadata(catalog: Catalog, uri: str) -> TableMetadata | None:
    """Return the content of a metadata file, or None if the file is incomplete. Storage errors are raised unchanged."""
    io = load_file_io(properties=catalog.properties, location=uri)
    try:
        return FromInputFile.table_metadata(io.new_input(uri))
    except (ValidationError, ValueError):
        return None


def _tables_in(storage: Storage, warehouse: str) -> Iterator[TableName]:
    """Yield the folders of a warehouse that hold Iceberg metadata, without listing data files."""
    filesystem, root = storage.find(warehouse)
    waiting: list[tuple[str, ...]] = [()]
    while waiting:
        parts = waiting.pop()
        selector = fs.FileSelector("/".join((root, *parts)), allow_not_found=True)
        folders = [info.base_name for info in filesystem.get_file_info(selector) if info.type == fs.FileType.Directory]
        if len(parts) > 1 and "metadata" in folders:
            metadata = fs.FileSelector("/".join((root, *parts, "metadata")), allow_not_found=True)
            if any(info.base_name.endswith(_SUFFIX) for info in filesystem.get_file_info(metadata)):
                yield TableName.parse(".".join(parts))
                continue
        if len(parts) < _LONGEST_NAME:
            waiting += [(*parts, folder) for folder in folders if "." not in folder]


def _create_namespace(catalog: Catalog, name: TableName) -> None:
    try:
        catalog.create_namespace(name.namespace)
    except (NamespaceAlreadyExistsError, IntegrityError):
        pass


def _count_rows(metadata: TableMetadata) -> int:
    snapshot = metadata.current_snapshot()
    return rows_after(snapshot) if snapshot else 0
