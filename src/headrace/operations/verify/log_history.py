"""What the write-ahead commit log says of a stream, file by file, held against the tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import pyarrow.parquet as pq
from pyiceberg.table import Table

from headrace.iceberg.files.storage import Storage, exists, open_input
from headrace.landing.commit_log import LogEntry, read_log


@dataclass(frozen=True)
class LoggedFile:
    """A data file that the log names. `offsets` are the first and last offset of each partition in it."""

    entry: LogEntry
    state: Literal["committed", "orphan", "gone"]
    table: str
    rows: int
    offsets: Mapping[int, tuple[int, int]]


def list_commits(
    commit_log: str, *, table: Table, quarantine: Table, checkpoint_id: int | None = None
) -> tuple[LoggedFile, ...]:
    """Return the files of one checkpoint, or of all, in the order of checkpoints.

    A file is committed if a snapshot refers to it, an orphan if none does (its attempt died), gone if it is no longer there.
    """
    names = {path: ".".join(each.name()) for each in (table, quarantine) for path in files_of(each)}
    storage = Storage.of(table.io.properties)
    return tuple(
        _look_at(entry, names.get(entry.s3_key), table=".".join(table.name()), storage=storage)
        for entry in read_log(commit_log, checkpoint_id=checkpoint_id, storage=storage)
    )


def files_of(table: Table) -> frozenset[str]:
    """Return the data files that any snapshot of the table refers to."""
    manifests = {manifest.manifest_path: manifest for at in table.snapshots() for manifest in at.manifests(table.io)}
    return frozenset(
        entry.data_file.file_path for manifest in manifests.values() for entry in manifest.fetch_manifest_entry(table.io)
    )


def _look_at(entry: LogEntry, owner: str | None, *, table: str, storage: Storage) -> LoggedFile:
    """Return what became of a file; `owner` is the table that refers to it, and one that none does is `table`'s."""
    if not exists(entry.s3_key, storage=storage):
        return LoggedFile(entry, "committed" if owner else "gone", owner or table, 0, {})
    rows, offsets = _read_coordinates(entry.s3_key, storage)
    return LoggedFile(entry, "committed" if owner else "orphan", owner or table, rows, offsets)


def _read_coordinates(uri: str, storage: Storage) -> tuple[int, dict[int, tuple[int, int]]]:
    with open_input(uri, storage=storage) as stream:
        file = pq.ParquetFile(stream)
        prefix = "kafka_" if "kafka_partition" in file.schema_arrow.names else ""
        table = file.read(columns=[f"{prefix}partition", f"{prefix}offset"]).rename_columns(["partition", "offset"])
    found = table.group_by("partition").aggregate([("offset", "min"), ("offset", "max")])
    offsets = {row["partition"]: (row["offset_min"], row["offset_max"]) for row in found.to_pylist()}
    return table.num_rows, dict(sorted(offsets.items()))
