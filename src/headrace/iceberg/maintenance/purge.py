"""Purge a table's history: old snapshots, and every file that the current snapshot does not need.

When rows are deleted, Iceberg keeps the files of older snapshots, and its manifests name removed files with the bounds of their
columns. After a purge neither the rows nor the bounds are on disk.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table, Transaction
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.update import AssertTableUUID, RemoveSnapshotRefUpdate, RemoveSnapshotsUpdate

from headrace.iceberg.commits.commit import commit_once
from headrace.iceberg.files.storage import Storage, StoredFile, delete_file, list_all
from headrace.iceberg.ledgers import build as build_ledger
from headrace.iceberg.ledgers import landing as ledger
from headrace.iceberg.pyiceberg_private.live_snapshot import LiveSnapshot
from headrace.iceberg.pyiceberg_private.transactions import staged_requirements, staged_updates
from headrace.spec.model.pipeline import TableName

_ENTRIES = (ledger.KEY, build_ledger.KEY)
OTHERS_HURRY_SECONDS = 3_600.0
"""The age at which a file of a shared table no longer belongs to a commit in progress."""

_DATA = re.compile(r"/\.?(part-|[0-9]{5}-)[^/]*\.parquet(\.inprogress)?$")
_METADATA = re.compile(r"/metadata/[^/]*(\.avro|\.metadata\.json)$")
_CHECKSUMS = re.compile(r"(?P<folder>.*)/\.(?P<name>[^/]*)\.crc")


@dataclass(frozen=True)
class Purged:
    """What a purge removed: the number of snapshots, the names of branches and tags, and the number of files."""

    snapshots: int = 0
    refs: tuple[str, ...] = ()
    files: int = 0


def purge_table(
    catalog: Catalog,
    name: TableName,
    *,
    folders: tuple[str, ...],
    before: float,
    logged: Collection[str] = (),
    is_ours: Callable[[StoredFile], bool] | None = None,
) -> Purged:
    """Remove a table's history, and return what was removed. Idempotent.

    `folders` contain the table's files. Unreferenced files are deleted if they are the table's own (`is_own`) and older than
    `before`, the time at which the caller locked out writers. Pass `is_ours` for a table that others may write to meanwhile:
    then an unreferenced data file is deleted only if `is_ours` returns True, and a metadata file only if it is too old to
    belong to a commit in progress.
    """
    table = catalog.load_table(str(name))
    refs = tuple(ref for ref in table.metadata.refs if ref != MAIN_BRANCH)
    snapshots = len(table.metadata.snapshots)
    known = referred_files(table, with_deleted=True)
    if table.current_snapshot() is not None:
        table = commit_once(lambda: _commit(catalog, name), find=lambda: None, where=str(name))
    needed, storage = needed_files(table), Storage.of(table.io.properties)
    limit = before if is_ours is None else min(before, time.time() - OTHERS_HURRY_SECONDS)
    gone = 0
    for file in list_all(*folders, storage=storage):
        plain = checked_file(file.uri)
        if plain in needed or not (is_data(plain) or is_metadata(plain)):
            continue
        is_orphan = file.modified < limit if is_ours is None or not is_data(plain) else is_ours(file)
        if plain in known or (is_orphan and is_own(table, plain, logged=logged)):
            delete_file(file.uri, storage=storage)
            gone += 1
    return Purged(max(0, snapshots - 1), refs, gone)


def is_data(uri: str) -> bool:
    """Return whether a file has the name of a data file of landing or Iceberg, complete or in progress."""
    return _DATA.search(uri) is not None


def is_metadata(uri: str) -> bool:
    """Return whether a file has the name of a manifest, a manifest list or table metadata."""
    return _METADATA.search(uri) is not None


def checked_file(uri: str) -> str:
    """Return the file that a checksum file belongs to (Java writes one beside every file on a disk), or the file itself."""
    match = _CHECKSUMS.fullmatch(uri)
    return f"{match['folder']}/{match['name']}" if match else uri


def is_own(table: Table, plain: str, *, logged: Collection[str]) -> bool:
    """Return whether an unreferenced file certainly belongs to the table.

    Files in the table's folder do. A stream's files may be configured to be in another folder, which tables of this or another
    catalog may share: there a file belongs to the table only if its name has the table's UUID, or the commit log names it.
    """
    if plain.startswith(f"{plain_location(table.location()).rstrip('/')}/"):
        return True
    return str(table.metadata.table_uuid) in plain.rsplit("/", 1)[-1] or plain in logged


def stray_files(table: Table, folders: tuple[str, ...], *, logged: Collection[str] = ()) -> tuple[StoredFile, ...]:
    """Return the table's own data files in its folders that no snapshot of it refers to."""
    known, stored = referred_files(table, with_deleted=True), list_all(*folders, storage=Storage.of(table.io.properties))
    return tuple(
        file
        for file in stored
        if is_data(file.uri) and (plain := checked_file(file.uri)) not in known and is_own(table, plain, logged=logged)
    )


def _commit(catalog: Catalog, name: TableName) -> Table:
    """Commit a snapshot of the same rows that names only live files, and remove all other snapshots."""
    table = catalog.load_table(str(name))
    entries = {key: table.properties[key] for key in _ENTRIES if key in table.properties}
    transaction = Transaction(table)
    LiveSnapshot(transaction, io=table.io, properties=entries).commit()
    old = [snapshot.snapshot_id for snapshot in table.metadata.snapshots]
    refs = [ref for ref in table.metadata.refs if ref != MAIN_BRANCH]
    updates = (
        *staged_updates(transaction),
        *(RemoveSnapshotRefUpdate(ref_name=ref) for ref in refs),  # type: ignore[call-arg]
        RemoveSnapshotsUpdate(snapshot_ids=old),  # type: ignore[call-arg]
    )
    requirements = (*staged_requirements(transaction), AssertTableUUID(uuid=table.metadata.table_uuid))
    response = catalog.commit_table(table, requirements, updates)
    table.metadata, table.metadata_location = response.metadata, response.metadata_location
    return table


def needed_files(table: Table) -> frozenset[str]:
    """Return the files of the table's current snapshot, and the current metadata file."""
    current = table.current_snapshot()
    files = {plain_location(table.metadata_location)}
    for manifest in current.manifests(table.io) if current else ():
        files.add(plain_location(manifest.manifest_path))
        files |= {plain_location(entry.data_file.file_path) for entry in manifest.fetch_manifest_entry(table.io)}
    return frozenset(files | ({plain_location(current.manifest_list)} if current else set()))


def referred_files(table: Table, *, with_deleted: bool = False) -> frozenset[str]:
    """Return all files that any snapshot of the table refers to; with `with_deleted` also the files that manifests name as
    deleted."""
    metadata = table.metadata
    files = {plain_location(table.metadata_location), *(plain_location(entry.metadata_file) for entry in metadata.metadata_log)}
    manifests = {}
    for snapshot in metadata.snapshots:
        files.add(plain_location(snapshot.manifest_list))
        manifests.update({manifest.manifest_path: manifest for manifest in snapshot.manifests(table.io)})
    for path, manifest in manifests.items():
        files.add(plain_location(path))
        entries = manifest.fetch_manifest_entry(table.io, discard_deleted=not with_deleted)
        files |= {plain_location(entry.data_file.file_path) for entry in entries}
    return frozenset(files)


def plain_location(location: str) -> str:
    """Return a location in the form of `list_all`: Java omits the empty host of file URIs, and has other schemes for S3."""
    return re.sub(r"^s3[an]://", "s3://", re.sub(r"^file:/(?!/)", "file:///", location))
