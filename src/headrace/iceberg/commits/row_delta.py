"""The files that a build adds to a table and removes from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyiceberg.manifest import DataFile


@dataclass(frozen=True)
class RowDelta:
    """The files that one snapshot adds to a table and removes from it.

    `deletes` are new position-delete files, each for one data file that stays. `outdated` delete files are removed with their
    data file, or because one of `deletes` replaces them. `snapshot_id` is the snapshot from which the build read the files that
    it changes.
    """

    added: Sequence[DataFile] = ()
    removed: Sequence[DataFile] = ()
    deletes: Sequence[DataFile] = ()
    outdated: Sequence[DataFile] = ()
    snapshot_id: int | None = None

    def __post_init__(self) -> None:
        if self.changes_files and self.snapshot_id is None:
            raise ValueError("a row delta that removes files or adds deletes needs the snapshot id that they were read from")

    def __bool__(self) -> bool:
        return bool(self.added) or self.changes_files

    @property
    def changes_files(self) -> bool:
        """Return whether the delta does more than add rows."""
        return bool(self.removed or self.deletes or self.outdated)
