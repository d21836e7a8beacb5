"""Rows of Spark that are computed once and kept on the executors, with a plan that starts at them."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING

from pyspark import StorageLevel

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_LEVEL = StorageLevel.DISK_ONLY
"""Kept rows are as many as a large table has, and each is read a few times: in the heap they would only push others out."""


class Checkpoints:
    """Kept rows, until they are released or the block ends.

    A local checkpoint cuts the lineage, so that the plan of an iteration does not grow with its rounds. Rows of an executor
    that is lost can't be computed again: the job fails and changes nothing, and the next one starts from the beginning.
    """

    def __init__(self) -> None:
        self._kept: list[DataFrame] = []

    def __enter__(self) -> Checkpoints:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.release(*self._kept)

    def keep(self, rows: DataFrame) -> DataFrame:
        """Compute the rows now and return them as a frame that reads what was kept."""
        kept = rows.localCheckpoint(eager=True, storageLevel=_LEVEL)
        self._kept.append(kept)
        return kept

    def release(self, *frames: DataFrame) -> None:
        """Delete the kept rows of frames that `keep` has returned; they can't be read any more."""
        for frame in frames:
            frame._jdf.queryExecution().logical().rdd().unpersist(False)
        self._kept = [frame for frame in self._kept if not any(frame is released for released in frames)]
