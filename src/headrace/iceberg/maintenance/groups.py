"""Which files of a table are worth writing anew together."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pyiceberg.table import Table

FEWEST_FILES = 5
"""How many small files a partition has when they are worth writing together."""

_SMALL = 0.75


@dataclass(frozen=True)
class FileFacts:
    """A data file of the current snapshot. Files of one `partition` say the same; `deleted` rows of it are deleted there."""

    path: str
    partition: str
    rows: int
    bytes: int
    deleted: int = 0


@dataclass(frozen=True)
class Group:
    """Files that are read, sorted and written together. They may be of several partitions, which stay apart."""

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
            sum(each.record_count for each in task.delete_files),
        )
        for task in table.scan().plan_files()
    )


def choose_groups(files: Sequence[FileFacts], *, target_bytes: int, most_bytes: int) -> tuple[Group, ...]:
    """Return the groups to write anew: what is small, if a partition has several of them, and what has deleted rows.

    A file that is big enough and whole stays as it is, so a table that was compacted has nothing to gain. A group, which one
    commit replaces, has `most_bytes` unless a single file has more.
    """
    by_partition: dict[str, list[FileFacts]] = defaultdict(list)
    for file in files:
        if file.deleted or file.bytes < target_bytes * _SMALL:
            by_partition[file.partition].append(file)
    groups: list[Group] = []
    pending: list[FileFacts] = []
    for _, found in sorted(by_partition.items()):
        if len(found) < FEWEST_FILES and not any(file.deleted for file in found):
            continue
        for part in _cut(found, most_bytes=most_bytes):
            both = [*pending, *part]
            if pending and Group(tuple(both)).bytes > most_bytes:
                groups.append(Group(tuple(pending)))
                both = part
            pending = both
    return (*groups, Group(tuple(pending))) if pending else tuple(groups)


def _cut(files: Sequence[FileFacts], *, most_bytes: int) -> Iterator[list[FileFacts]]:
    """Yield one partition's files in parts that a group can take; a last file that nothing is wrong with stays out."""
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
