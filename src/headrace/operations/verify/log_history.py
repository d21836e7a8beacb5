"""Compare the write-ahead commit log of a stream with its tables, file by file."""

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
    """A data file in the log. `offsets` are the first and last offset of each partition in it."""

    entry: LogEntry
    state: Literal["committed", "orphan", "gone"]
    table: str
    rows: int
    offsets: Mapping[int, tuple[int, int]]


def list_commits(
    commit_log: str, *, table: Table, quarantine: Table, checkpoint_id: int | None = None
) -> tuple[LoggedFile, ...]:
    """Return the files of one checkpoint, or of all, ordered by checkpoint.

    A file is `committed` if a snapshot refers to it, `orphan` if none does (its attempt failed), `gone` if it was deleted.
    """
    names = {path: ".".join(owner.name()) for owner in (table, quarantine) for path in files_of(owner)}
    storage = Storage.of(table.io.properties)
    return tuple(
        _describe_file(entry, names.get(entry.s3_key), table=".".join(table.name()), storage=storage)
        for entry in read_log(commit_log, checkpoint_id=checkpoint_id, storage=storage)
    )


def files_of(table: Table) -> frozenset[str]:
    """Return the data files of all snapshots of the table."""
    manifests = {manifest.manifest_path: manifest for at in table.snapshots() for manifest in at.manifests(table.io)}
    return frozenset(
        entry.data_file.file_path for manifest in manifests.values() for entry in manifest.fetch_manifest_entry(table.io)
    )


def _describe_file(entry: LogEntry, owner: str | None, *, table: str, storage: Storage) -> LoggedFile:
    """Return the state of a file. `owner` is the table that refers to it, if any; otherwise it is reported under `table`."""
    if not exists(entry.s3_key, storage=storage):
        return LoggedFile(entry, "committed" if owner else "gone", owner or table, 0, {})
    rows, offsets = _read_coordinates(entry.s3_key, storage)
    return LoggedFile(entry, "committed" if owner else "orphan", owner or table, rows, offsets)


def _read_coordinates(uri: str, storage: Storage) -> tuple[int, dict[int, tuple[int, int]]]:
    with open_input(uri, storage=storage) as stream:
        file = pq.ParquetFile(stream)
        prefix = "kafka_" if "kafka_partition" in file.schema_arrow.names else ""
        table = file.read(columns=[f"{prefix}partition", f"{prefix}offset"]).rename_columns(["partition", "offset"])
    ranges = table.group_by("partition").aggregate([("offset", "min"), ("offset", "max")])
    offsets = {row["partition"]: (row["offset_min"], row["offset_max"]) for row in ranges.to_pylist()}
    return table.num_rows, dict(sorted(offsets.items()))
