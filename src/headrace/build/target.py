"""The table that a build changes, and the staged result of a merge."""

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
    """The table that a build changes, with its old rows of the touched keys. `columns` are the ones that a build computes."""

    lake: Lake
    table: LayerTable
    old: OldRows
    columns: Sequence[str]
    build_id: int


@dataclass(frozen=True)
class Merged:
    """The staged files of a merge, and the numbers of changed rows.

    `change` has the added and removed files: a RowDelta is committed without Java. `deletions` are events that delete a key.
    `carried` is the change in the number of rows with a value from another event, `unknown` with a value that no event
    contains.
    """

    change: RowDelta | FileChanges
    written: int
    gone: int
    read_bytes: int
    written_bytes: int
    deletions: int = 0
    carried: int = 0
    unknown: int = 0
