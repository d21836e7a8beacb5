"""The table that a build changes, and what a merge has staged for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headrace.build.lake import Lake
from headrace.build.planned_inputs import OldRows
from headrace.iceberg.commits.build_commit import FileChanges
from headrace.iceberg.commits.row_delta import RowDelta
from headrace.spec.model.layers import LayerTable


@dataclass(frozen=True)
class Target:
    """The table that a build changes, and its old rows of the touched keys. `columns` are the ones that a build decides."""

    lake: Lake
    table: LayerTable
    old: OldRows
    columns: Sequence[str]
    build_id: int


@dataclass(frozen=True)
class Merged:
    """What was staged, and how many rows changed.

    `change` are the files that come and go: a RowDelta is committed without Java. `deletions` are events that deleted a key,
    `carried` is how many rows more (or less) have a value that another event told, `unknown` one that none told.
    """

    change: RowDelta | FileChanges
    written: int
    gone: int
    read_bytes: int
    written_bytes: int
    deletions: int = 0
    carried: int = 0
    unknown: int = 0
