"""What builds read from data files, kept for the next ones. It can't be stale: a data file never changes.

The types in which its columns are read may widen with the table, so they are part of every question.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Mapping
from threading import Lock

import polars as pl

MOST_BYTES = 512 * 1024 * 1024


class ReadFiles:
    """Frames by the paths of their files, and parts of files by the number of their first row.

    When all together are too large, those go that were not asked for longest; parts go before frames.
    """

    def __init__(self, *, most_bytes: int = MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._frames: OrderedDict[str, pl.DataFrame] = OrderedDict()
        self._parts: OrderedDict[tuple[str, int], pl.DataFrame] = OrderedDict()
        self._lock = Lock()

    def get(self, path: str, schema: pl.Schema) -> pl.DataFrame | None:
        """Return the columns of a schema in a file, or None where they have to be read."""
        with self._lock:
            found = self._frames.get(path)
            if found is None or not schema.items() <= found.schema.items():
                return None
            self._frames.move_to_end(path)
        return found.select(schema.names())

    def put(self, path: str, frame: pl.DataFrame) -> None:
        with self._lock:
            self._frames[path] = frame
            self._frames.move_to_end(path)
            self._make_room()

    def parts(self, path: str, schema: pl.Schema) -> dict[int, pl.DataFrame]:
        """Return the columns of a schema in the parts of a file that are there, by their first row."""
        with self._lock:
            parts = self._parts.items()
            known = [each for each, frame in parts if each[0] == path and schema.items() <= frame.schema.items()]
            for each in known:
                self._parts.move_to_end(each)
            return {first: self._parts[path, first].select(schema.names()) for _, first in known}

    def put_parts(self, path: str, parts: Mapping[int, pl.DataFrame]) -> None:
        with self._lock:
            for first, frame in parts.items():
                self._parts[path, first] = frame
                self._parts.move_to_end((path, first))
            self._make_room()

    def keep_only(self, paths: Collection[str], *, under: str) -> None:
        """Drop the files of a folder that are not among these."""
        with self._lock:
            for path in [each for each in self._frames if each.startswith(under) and each not in paths]:
                del self._frames[path]
            for part in [each for each in self._parts if each[0].startswith(under) and each[0] not in paths]:
                del self._parts[part]

    def _make_room(self) -> None:
        sizes = [each.estimated_size() for frames in (self._parts, self._frames) for each in frames.values()]
        over, gone = sum(sizes) - self._most_bytes, 0
        while over > 0:
            over -= sizes[gone]
            gone += 1
            if self._parts:
                self._parts.popitem(last=False)
            else:
                self._frames.popitem(last=False)
