"""Takes a table's past away: old snapshots, and every file that the current one does not need.

Iceberg leaves a snapshot's files where they are when rows are deleted, and names what went in its manifests, with the least and
the greatest value of every column. After a purge neither the rows nor those values are on disk.
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
"""How old a file of a shared table must be to belong to nobody's commit that is under way."""

_DATA = re.compile(r"/\.?(part-|[0-9]{5}-)[^/]*\.parquet(\.inprogress)?$")
_METADATA = re.compile(r"/metadata/[^/]*(\.avro|\.metadata\.json)$")
_CHECKSUMS = re.compile(r"(?P<folder>.*)/\.(?P<name>[^/]*)\.crc")


@dataclass(frozen=True)
class Purged:
    """How much of a table's past went: snapshots, named branches and tags, files."""

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
    """Return what went. Idempotent: a table that is purged already has nothing to lose.

    `folders` are where the table's files are. Files that nothing refers to go if they are the table's own (`is_own`) and older
    than `before`, when the caller began to keep writers away. A table that others may write to meanwhile has `is_ours`: then a
    data file that nothing refers to goes only if that says so, and a metadata file only if it is too old to belong to a commit
    that is under way.
    """
    table = catalog.load_table(str(name))
    refs = tuple(ref for ref in table.metadata.refs if ref != MAIN_BRANCH)
    snapshots = len(table.metadata.snapshots)
    known = referred_files(table, with_deleted=True)
    if table.current_snapshot() is not None:
        table = commit_once(lambda: _commit(catalog, name), find=lambda: None, where=str(name))
    kept, storage = needed_files(table), Storage.of(table.io.properties)
    limit = before if is_ours is None else min(before, time.time() - OTHERS_HURRY_SECONDS)
    gone = 0
    for file in list_all(*folders, storage=storage):
        plain = checked_file(file.uri)
        if plain in kept or not (is_data(plain) or is_metadata(plain)):
            continue
        is_left = file.modified < limit if is_ours is None or not is_data(plain) else is_ours(file)
        if plain in known or (is_left and is_own(table, plain, logged=logged)):
            delete_file(file.uri, storage=storage)
            gone += 1
    return Purged(max(0, snapshots - 1), refs, gone)


def is_data(uri: str) -> bool:
    """Return whether a file is called what landing and Iceberg call data files, whole or not."""
    return _DATA.search(uri) is not None


def is_metadata(uri: str) -> bool:
    """Return whether a file is called what Iceberg calls manifests, lists of them and a table's metadata."""
    return _METADATA.search(uri) is not None


def checked_file(uri: str) -> str:
    """Return the file whose checksums a file holds (Java writes one beside every file on a disk), or the file itself."""
    found = _CHECKSUMS.fullmatch(uri)
    return f"{found['folder']}/{found['name']}" if found else uri


def is_own(table: Table, plain: str, *, logged: Collection[str]) -> bool:
    """Return whether a file that no snapshot refers to is surely the table's.

    It is one in the table's folder. A stream may be told to put its files elsewhere, also where other tables have theirs, of
    this catalog or of another: there a file is the table's only if its name has the table's UUID, or the commit log names it.
    """
    if plain.startswith(f"{plain_location(table.location()).rstrip('/')}/"):
        return True
    return str(table.metadata.table_uuid) in plain.rsplit("/", 1)[-1] or plain in logged


def stray_files(table: Table, folders: tuple[str, ...], *, logged: Collection[str] = ()) -> tuple[StoredFile, ...]:
    """Return the data files in a table's folders that are its own and that no snapshot of it refers to."""
    known, stored = referred_files(table, with_deleted=True), list_all(*folders, storage=Storage.of(table.io.properties))
    return tuple(
        file
        for file in stored
        if is_data(file.uri) and (plain := checked_file(file.uri)) not in known and is_own(table, plain, logged=logged)
    )


def _commit(catalog: Catalog, name: TableName) -> Table:
    """Commit a snapshot of the same rows that refers to live files alone, and leaves all others out."""
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
    """Return the files that the table's current snapshot needs, and its metadata."""
    current = table.current_snapshot()
    found = {plain_location(table.metadata_location)}
    for manifest in current.manifests(table.io) if current else ():
        found.add(plain_location(manifest.manifest_path))
        found |= {plain_location(entry.data_file.file_path) for entry in manifest.fetch_manifest_entry(table.io)}
    return frozenset(found | ({plain_location(current.manifest_list)} if current else set()))


def referred_files(table: Table, *, with_deleted: bool = False) -> frozenset[str]:
    """Return all files that the table refers to, of whatever snapshot; and those that a snapshot says it deleted."""
    metadata = table.metadata
    found = {plain_location(table.metadata_location), *(plain_location(each.metadata_file) for each in metadata.metadata_log)}
    manifests = {}
    for snapshot in metadata.snapshots:
        found.add(plain_location(snapshot.manifest_list))
        manifests.update({manifest.manifest_path: manifest for manifest in snapshot.manifests(table.io)})
    for path, manifest in manifests.items():
        found.add(plain_location(path))
        entries = manifest.fetch_manifest_entry(table.io, discard_deleted=not with_deleted)
        found |= {plain_location(entry.data_file.file_path) for entry in entries}
    return frozenset(found)


def plain_location(location: str) -> str:
    """Return a location as `list_all` has it: Java leaves the two empty slashes of a file's host out, and has other names
    for S3."""
    return re.sub(r"^s3[an]://", "s3://", re.sub(r"^file:/(?!/)", "file:///", location))
