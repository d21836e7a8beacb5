"""Find and remove orphan files after a grace period.

An unreferenced file is left over from a crashed attempt, belonged to an expired snapshot, or is about to be committed. These
cases look the same, so maintenance records each file when it first finds it, and deletes it when it has been unreferenced for a
whole grace period. A file written within the grace period always stays. Landing, builds, replays, erasures and compaction don't
commit files older than half of it (`in_flight.py`), so no file is deleted that could still be committed. A query on an expired
snapshot has the grace period to finish.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from pyiceberg.catalog import Catalog

from headrace.iceberg.files.storage import Storage, StoredFile, delete_file, exists, list_all, new_file, read_text
from headrace.iceberg.maintenance.purge import checked_file, is_data, is_metadata, is_own, plain_location, referred_files
from headrace.spec.model.pipeline import TableName

_NOTE = "metadata/unreferenced.json"


@dataclass(frozen=True)
class Orphans:
    """Orphan files: `gone` were deleted or can be deleted now, `waiting` are within the grace period."""

    gone: tuple[str, ...] = ()
    waiting: tuple[str, ...] = ()


@dataclass(frozen=True)
class Grace:
    """The grace period: how long a file must be unreferenced, and the current time."""

    seconds: float
    now: float

    def is_over(self, file: StoredFile, since: float) -> bool:
        return max(file.modified, since) <= self.now - self.seconds


def find_orphans(
    catalog: Catalog,
    name: TableName,
    *,
    folders: tuple[str, ...],
    named: Collection[str],
    grace: Grace,
    logged: Collection[str] = (),
) -> tuple[Orphans, Mapping[str, float]]:
    """Return the table's orphan files below the folders, and when each waiting one was first found.

    `named` are files in a ledger entry elsewhere: they belong to an unfinished commit, whatever their age. `logged` are the
    files outside of the table's folder that its commit log names; other files there belong to other tables.
    """
    storage = Storage.of(catalog.properties)
    stored = list_all(*folders, storage=storage)  # before the metadata, so that files committed in between are not orphans
    table = catalog.load_table(str(name))
    needed = referred_files(table) | {plain_location(path) for path in named}
    if not any(file.uri in needed for file in stored):
        return Orphans(), {}  # the listing and the metadata spell locations differently, so every file would look unreferenced
    first_found = _read_note(table.location(), storage=storage)
    unreferenced = {
        file: first_found.get(file.uri, grace.now)
        for file in stored
        if (is_data(plain := checked_file(file.uri)) or is_metadata(plain))
        and plain not in needed
        and is_own(table, plain, logged=logged)
    }
    gone = {file.uri for file, since in unreferenced.items() if grace.is_over(file, since)}
    waiting = {file.uri: since for file, since in unreferenced.items() if file.uri not in gone}
    return Orphans(tuple(sorted(gone)), tuple(sorted(waiting))), waiting


def remove_orphans(
    catalog: Catalog,
    name: TableName,
    *,
    folders: tuple[str, ...],
    named: Collection[str],
    grace: Grace,
    logged: Collection[str] = (),
) -> Orphans:
    """Delete orphan files after their grace period, and record the waiting ones. Idempotent."""
    orphans, waiting = find_orphans(catalog, name, folders=folders, named=named, grace=grace, logged=logged)
    storage = Storage.of(catalog.properties)
    for uri in orphans.gone:
        delete_file(uri, storage=storage)
    _write_note(catalog.load_table(str(name)).location(), waiting, storage=storage)
    return orphans


def _read_note(location: str, *, storage: Storage) -> dict[str, float]:
    uri = f"{location}/{_NOTE}"
    if not exists(uri, storage=storage):
        return {}
    return {str(path): float(since) for path, since in json.loads(read_text(uri, storage=storage)).items()}


def _write_note(location: str, waiting: Mapping[str, float], *, storage: Storage) -> None:
    uri = f"{location}/{_NOTE}"
    if waiting:
        with new_file(uri, storage=storage) as stream:
            stream.write(json.dumps(waiting, indent=0, sort_keys=True).encode("utf-8"))
    else:
        delete_file(uri, storage=storage)
