"""Step 5, log: name every data file durably before any table refers to it.

`<commit log>/chk-N/subtask-M.csv` has the columns `checkpoint_id, s3_key, commit_timestamp`. Entries of failed attempts stay in
the log: no table refers to their files.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from headrace.errors import SpecError
from headrace.iceberg.files.storage import DISK, Storage, exists, list_files, new_file, read_text

_OWNER = "table-uuid"
HEADER = ("checkpoint_id", "s3_key", "commit_timestamp")


@dataclass(frozen=True)
class LogEntry:
    """One line of the log: a data file, its location, and the time just before its commit."""

    checkpoint_id: int
    s3_key: str
    commit_timestamp: str
    subtask: int


def log_files(
    commit_log: str,
    *,
    checkpoint_id: int,
    subtask: int,
    batch: str,
    paths: Sequence[str],
    now: datetime,
    storage: Storage = DISK,
) -> None:
    """Write a subtask's log. Idempotent by checkpoint, subtask and batch, or file: a retry replaces its own entries.

    Entries of another batch under the same numbers stay. If this application was taken over, they name files that its
    successor has committed.
    """
    uri = f"{commit_log}/chk-{checkpoint_id}/subtask-{subtask}.csv"
    logged = _read_entries(uri, storage) if exists(uri, storage=storage) else []
    others = [entry for entry in logged if batch not in entry.s3_key and entry.s3_key not in paths]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(HEADER)
    writer.writerows((entry.checkpoint_id, entry.s3_key, entry.commit_timestamp) for entry in others)
    writer.writerows((checkpoint_id, path, now.isoformat(timespec="microseconds")) for path in paths)
    with new_file(uri, storage=storage) as stream:
        stream.write(text.getvalue().encode("utf-8"))


def read_log(commit_log: str, *, checkpoint_id: int | None = None, storage: Storage = DISK) -> tuple[LogEntry, ...]:
    """Return the entries of one checkpoint, or of all, ordered by checkpoint and subtask."""
    folder = commit_log if checkpoint_id is None else f"{commit_log}/chk-{checkpoint_id}"
    entries: list[LogEntry] = []
    for uri in list_files(folder, suffix=".csv", storage=storage):
        entries += _read_entries(uri, storage)
    return tuple(sorted(entries, key=lambda entry: (entry.checkpoint_id, entry.subtask, entry.s3_key)))


def claim_log(commit_log: str, *, table: str, owner: str, storage: Storage = DISK) -> None:
    """Record in a commit log the UUID `owner` of its table. Raise a SpecError if the log belongs to another table.

    Maintenance asks the log which files are the table's, so two tables, even of two lakes, must not share one.
    """
    uri = f"{commit_log}/{_OWNER}"
    if not exists(uri, storage=storage):
        with new_file(uri, storage=storage) as stream:
            stream.write(owner.encode("utf-8"))
    elif not is_log_of(commit_log, owner=owner, storage=storage):
        raise SpecError(
            f"the commit log {commit_log} belongs to another table: of another lake, or one that was dropped",
            where=table,
            next_step="Choose another commit_log. If that table is gone, move its log away, then run the same command again.",
        )


def is_log_of(commit_log: str, *, owner: str, storage: Storage = DISK) -> bool:
    """Return whether a commit log was claimed for a table."""
    uri = f"{commit_log}/{_OWNER}"
    return exists(uri, storage=storage) and read_text(uri, storage=storage) == owner


def _read_entries(uri: str, storage: Storage) -> list[LogEntry]:
    subtask = int(uri.rsplit("subtask-", 1)[1].removesuffix(".csv"))
    return [
        LogEntry(int(row["checkpoint_id"]), row["s3_key"], row["commit_timestamp"], subtask)
        for row in csv.DictReader(io.StringIO(read_text(uri, storage=storage)))
    ]
