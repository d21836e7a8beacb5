"""What builds read from data files, kept for the next ones. It can't be stale: a data file never changes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Sequence
from threading import Lock

import polars as pl

MOST_BYTES = 512 * 1024 * 1024


class ReadFiles:
    """Frames by the paths of their files. Those that were not asked for longest go when all together are too large."""

    def __init__(self, *, most_bytes: int = MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._frames: OrderedDict[str, pl.DataFrame] = OrderedDict()
        self._lock = Lock()

    def get(self, path: str, columns: Sequence[str]) -> pl.DataFrame | None:
        """Gives back these columns of a file, or None where they have to be read."""
        with self._lock:
            found = self._frames.get(path)
            if found is None or not {*columns} <= {*found.columns}:
                return None
            self._frames.move_to_end(path)
        return found.select(columns)

    def put(self, path: str, frame: pl.DataFrame) -> None:
        with self._lock:
            self._frames[path] = frame
            self._frames.move_to_end(path)
            while sum(each.estimated_size() for each in self._frames.values()) > self._most_bytes:
                self._frames.popitem(last=False)

    def keep_only(self, paths: Collection[str], *, under: str) -> None:
        """Drops the files of a folder that are not among these."""
        with self._lock:
            for path in [each for each in self._frames if each.startswith(under) and each not in paths]:
                del self._frames[path]
