"""A cache of data files for later builds. Data files are immutable, so it is never stale.

The types in which columns are read may widen with the table, so every lookup includes them.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Mapping
from threading import Lock

import polars as pl

MOST_BYTES = 512 * 1024 * 1024


class ReadFiles:
    """Frames by file path, and parts of files by their first position.

    The least recently used entries are evicted when the cache is too large; parts are evicted before frames.
    """

    def __init__(self, *, most_bytes: int = MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._frames: OrderedDict[str, pl.DataFrame] = OrderedDict()
        self._parts: OrderedDict[tuple[str, int], pl.DataFrame] = OrderedDict()
        self._lock = Lock()

    def get(self, path: str, schema: pl.Schema) -> pl.DataFrame | None:
        """Return the schema's columns of a file, or None if they are not cached."""
        with self._lock:
            frame = self._frames.get(path)
            if frame is None or not schema.items() <= frame.schema.items():
                return None
            self._frames.move_to_end(path)
        return frame.select(schema.names())

    def put(self, path: str, frame: pl.DataFrame) -> None:
        with self._lock:
            self._frames[path] = frame
            self._frames.move_to_end(path)
            self._make_room()

    def parts(self, path: str, schema: pl.Schema) -> dict[int, pl.DataFrame]:
        """Return the schema's columns of the cached parts of a file, by first position."""
        with self._lock:
            parts = self._parts.items()
            known = [key for key, frame in parts if key[0] == path and schema.items() <= frame.schema.items()]
            for key in known:
                self._parts.move_to_end(key)
            return {first: self._parts[path, first].select(schema.names()) for _, first in known}

    def put_parts(self, path: str, parts: Mapping[int, pl.DataFrame]) -> None:
        with self._lock:
            for first, frame in parts.items():
                self._parts[path, first] = frame
                self._parts.move_to_end((path, first))
            self._make_room()

    def keep_only(self, paths: Collection[str], *, under: str) -> None:
        """Drop the files of a folder that are not in `paths`."""
        with self._lock:
            for path in [path for path in self._frames if path.startswith(under) and path not in paths]:
                del self._frames[path]
            for part in [part for part in self._parts if part[0].startswith(under) and part[0] not in paths]:
                del self._parts[part]

    def _make_room(self) -> None:
        sizes = [frame.estimated_size() for frames in (self._parts, self._frames) for frame in frames.values()]
        excess, evicted = sum(sizes) - self._most_bytes, 0
        while excess > 0:
            excess -= sizes[evicted]
            evicted += 1
            if self._parts:
                self._parts.popitem(last=False)
            else:
                self._frames.popitem(last=False)
