"""Local checkpoints: rows that are computed once and stored on the executors, with a plan that starts at them."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING

from pyspark import StorageLevel

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_LEVEL = StorageLevel.DISK_ONLY
"""Checkpoints are as large as a large table and are read only a few times: in the heap they would evict other rows."""


class Checkpoints:
    """Checkpointed rows, until they are released or the block ends.

    A local checkpoint cuts the lineage, so that the plan of an iteration does not grow with its rounds. Rows of a lost executor
    can't be recomputed: the job fails without any change, and the next one starts from the beginning.
    """

    def __init__(self) -> None:
        self._frames: list[DataFrame] = []

    def __enter__(self) -> Checkpoints:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.release(*self._frames)

    def keep(self, rows: DataFrame) -> DataFrame:
        """Compute the rows now, and return a frame that reads the checkpoint."""
        checkpoint = rows.localCheckpoint(eager=True, storageLevel=_LEVEL)
        self._frames.append(checkpoint)
        return checkpoint

    def release(self, *frames: DataFrame) -> None:
        """Delete the checkpoints of frames that `keep` returned; the frames can't be read afterwards."""
        for frame in frames:
            frame._jdf.queryExecution().logical().rdd().unpersist(False)
        self._frames = [frame for frame in self._frames if not any(frame is released for released in frames)]
