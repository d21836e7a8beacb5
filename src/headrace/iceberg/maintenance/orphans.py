"""Files that nothing refers to, and when they may go.

Such a file is what an attempt left that died, what a snapshot needed that is no longer in the history, or what somebody is
about to commit. They look alike, so each is noted when it is first seen, and goes when nothing has referred to it for the whole
of a grace period. A file that was written within it stays in any case. Landing, builds, replays, erasures and compaction don't
commit files that are half as old (`in_flight.py`), so nothing is deleted that anybody may still commit; and who reads a
snapshot has the grace period to end.
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
    """Files that went, or may go now, and those that nothing refers to and whose time has not come."""

    gone: tuple[str, ...] = ()
    waiting: tuple[str, ...] = ()


@dataclass(frozen=True)
class Grace:
    """How long nothing must have referred to a file, and what time it is."""

    seconds: float
    now: float

    def is_over(self, file: StoredFile, seen: float) -> bool:
        return max(file.modified, seen) <= self.now - self.seconds


def find_orphans(
    catalog: Catalog,
    name: TableName,
    *,
    folders: tuple[str, ...],
    named: Collection[str],
    grace: Grace,
    logged: Collection[str] = (),
) -> tuple[Orphans, Mapping[str, float]]:
    """Return the table's own files below the folders that nothing refers to, and since when each is known to be one.

    `named` are files that an entry elsewhere names: they belong to a commit that is still to be finished, however old they are.
    `logged` are those outside of the table's folder that its commit log names; what else is there is somebody else's.
    """
    storage = Storage.of(catalog.properties)
    stored = list_all(*folders, storage=storage)  # before the metadata: what is committed after this look was in flight
    table = catalog.load_table(str(name))
    needed = referred_files(table) | {plain_location(each) for each in named}
    if not any(file.uri in needed for file in stored):
        return Orphans(), {}  # the files are called otherwise there than here, so nothing can be told of them
    seen_before = _read_note(table.location(), storage=storage)
    seen = {
        file: seen_before.get(file.uri, grace.now)
        for file in stored
        if (is_data(plain := checked_file(file.uri)) or is_metadata(plain))
        and plain not in needed
        and is_own(table, plain, logged=logged)
    }
    gone = {file.uri for file, since in seen.items() if grace.is_over(file, since)}
    waiting = {file.uri: since for file, since in seen.items() if file.uri not in gone}
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
    """Return what went and what waits, which is noted. Idempotent: what is gone is not found again."""
    found, waiting = find_orphans(catalog, name, folders=folders, named=named, grace=grace, logged=logged)
    storage = Storage.of(catalog.properties)
    for uri in found.gone:
        delete_file(uri, storage=storage)
    _write_note(catalog.load_table(str(name)).location(), waiting, storage=storage)
    return found


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
