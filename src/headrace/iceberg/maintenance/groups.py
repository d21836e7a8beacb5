"""Choose the groups of files that compaction rewrites together."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pyiceberg.table import Table

FEWEST_FILES = 5
"""The minimum number of small files in a partition that are worth compacting."""

_SMALL = 0.75


@dataclass(frozen=True)
class FileFacts:
    """A data file of the current snapshot. `partition` is equal for files of one partition; `deleted` counts deleted rows."""

    path: str
    partition: str
    rows: int
    bytes: int
    deleted: int = 0


@dataclass(frozen=True)
class Group:
    """Files that are read, sorted and written together. They may be of several partitions, which stay separate files."""

    files: tuple[FileFacts, ...]

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files)


def list_files(table: Table) -> tuple[FileFacts, ...]:
    """Return the data files of the table's current snapshot, from metadata alone."""
    return tuple(
        FileFacts(
            task.file.file_path,
            f"{task.file.spec_id}:{task.file.partition!r}",
            task.file.record_count,
            task.file.file_size_in_bytes,
            sum(deletes.record_count for deletes in task.delete_files),
        )
        for task in table.scan().plan_files()
    )


def choose_groups(files: Sequence[FileFacts], *, target_bytes: int, most_bytes: int) -> tuple[Group, ...]:
    """Return the groups to rewrite: the small files of partitions that have several, and files with deleted rows.

    A file that is large enough and has no deleted rows stays, so compacting twice changes nothing. One commit replaces a group,
    which has at most `most_bytes` unless a single file has more.
    """
    by_partition: dict[str, list[FileFacts]] = defaultdict(list)
    for file in files:
        if file.deleted or file.bytes < target_bytes * _SMALL:
            by_partition[file.partition].append(file)
    groups: list[Group] = []
    pending: list[FileFacts] = []
    for _, candidates in sorted(by_partition.items()):
        if len(candidates) < FEWEST_FILES and not any(file.deleted for file in candidates):
            continue
        for part in _cut(candidates, most_bytes=most_bytes):
            both = [*pending, *part]
            if pending and Group(tuple(both)).bytes > most_bytes:
                groups.append(Group(tuple(pending)))
                both = part
            pending = both
    return (*groups, Group(tuple(pending))) if pending else tuple(groups)


def _cut(files: Sequence[FileFacts], *, most_bytes: int) -> Iterator[list[FileFacts]]:
    """Yield one partition's files in parts that fit a group; a single last file without deleted rows is left out."""
    part: list[FileFacts] = []
    size = 0
    for file in files:
        if part and size + file.bytes > most_bytes:
            yield part
            part, size = [], 0
        part.append(file)
        size += file.bytes
    if len(part) > 1 or any(file.deleted for file in part):
        yield part
