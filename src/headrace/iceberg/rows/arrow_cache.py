"""A bounded cache folder of immutable Arrow IPC files, memory-mapped so that reading a few rows touches only their pages.

Every file can be rebuilt, so nothing here is durable: files are not synced, and damaged or missing ones are rebuilt. After a
crash of the machine, files may have holes that a reader can't detect; the caller therefore puts the boot id into the folder's
name.
"""

from __future__ import annotations

import logging
import os
import shutil
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from threading import Lock

import pyarrow as pa

from headrace.bounded_cache import BoundedCache
from headrace.iceberg.rows.row_sizes import TooLargeError

_log = logging.getLogger(__name__)

_MAPS = 4_096
"""How many files stay mapped: Linux allows 65,530 maps per process."""

_LOCKS = 64
_TOUCH_SECONDS = 60.0
_STALE_SECONDS = 3_600.0
"""The age at which an incomplete file counts as left over from a crashed process."""

_FILL = 0.9
"""The fraction of the bound that is filled after an eviction, so that not every write has to evict."""

SUFFIX, _IN_PROGRESS = ".arrow", ".inprogress"


@dataclass
class MappedFile:
    """The record batches of a mapped file, and when its modification time was last updated."""

    batches: tuple[pa.RecordBatch, ...]
    touched: float = 0.0


class ArrowCache:
    """Arrow files by name in `folder`. All files under `root` together have at most `most_bytes`.

    Safe between threads and processes: files appear atomically, and a deleted file stays readable through existing maps. The
    least recently used files are evicted, by their modification time.
    """

    def __init__(self, root: Path, folder: Path, *, most_bytes: int) -> None:
        self._root, self._folder, self._most_bytes = root, folder, most_bytes
        self._maps: BoundedCache[str, MappedFile] = BoundedCache(_MAPS)
        self._locks = tuple(Lock() for _ in range(_LOCKS))
        self._size_lock = Lock()
        self._total: int | None = None
        self._unchecked = 0

    def get(
        self, name: str, *, schema: pa.Schema, rows: int, build: Callable[[], Iterable[pa.RecordBatch]]
    ) -> tuple[pa.RecordBatch, ...]:
        """Return the batches of a file; write the file from the batches of `build` if it is missing, damaged or different.

        `build` must not use this cache. Raise TooLargeError if the file exceeds the bound.
        """
        mapped = self._maps.get(name)
        if mapped is None:
            with self._locks[hash(name) % _LOCKS]:
                mapped = self._maps.get(name) or self._open(name, schema, rows)
                if mapped is None:
                    mapped = self._write(name, schema, build())
                self._maps.put(name, mapped)
        self._touch(name, mapped)
        return mapped.batches

    def clear(self) -> None:
        """Delete every file, including files of other processes and of earlier boots of the machine. Idempotent."""
        with self._size_lock:
            self._maps.clear()
            self._total, self._unchecked = None, 0
            if self._root.exists():
                shutil.rmtree(self._root)

    def _open(self, name: str, schema: pa.Schema, rows: int) -> MappedFile | None:
        path = self._path(name)
        try:
            batches = _map(path)
            if not all(batch.schema.equals(schema) for batch in batches) or sum(map(len, batches)) != rows:
                raise pa.ArrowInvalid("unexpected columns or row count")
        except FileNotFoundError:
            return None
        except (pa.ArrowException, OSError, ValueError) as error:
            _log.warning("Rebuilding the damaged cache file %s: %s", path, error)
            path.unlink(missing_ok=True)
            return None
        return MappedFile(batches)

    def _write(self, name: str, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> MappedFile:
        path = self._path(name)
        for folder in (self._root, self._folder):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        hidden = path.with_name(f".{name}-{uuid.uuid4().hex}{_IN_PROGRESS}")
        os.close(os.open(hidden, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        try:
            with pa.OSFile(str(hidden), "wb") as stream, pa.ipc.new_file(stream, schema) as writer:
                for batch in batches:
                    writer.write_batch(batch)
                    if stream.tell() > self._most_bytes:
                        raise TooLargeError(f"the rows of a file take more than {self._most_bytes} bytes")
            size = hidden.stat().st_size
            mapped = MappedFile(_map(hidden), touched=time.monotonic())
            hidden.replace(path)
        except BaseException:
            hidden.unlink(missing_ok=True)
            raise
        self._make_room(size, keep=path)
        return mapped

    def _touch(self, name: str, mapped: MappedFile) -> None:
        now = time.monotonic()
        if now - mapped.touched > _TOUCH_SECONDS or not mapped.touched:
            mapped.touched = now
            try:
                os.utime(self._path(name))
            except OSError:
                pass  # evicted by another process; the map stays readable

    def _make_room(self, size: int, *, keep: Path) -> None:
        """Evict files if the folder is too large. It is listed when the running total exceeds the bound, and periodically.

        Other processes write too, so the running total of this process drifts.
        """
        with self._size_lock:
            self._unchecked += size
            if self._total is not None:
                self._total += size
                if self._total <= self._most_bytes and self._unchecked <= self._most_bytes // 16:
                    return
            files = sorted(_files_under(self._root), key=lambda file: file[1])
            total = sum(file_size for _, _, file_size in files)
            target = total if total <= self._most_bytes else int(self._most_bytes * _FILL)
            for path, modified, file_size in files:
                half_written = path.name.endswith(_IN_PROGRESS)
                if half_written and time.time() - modified < _STALE_SECONDS:
                    continue
                if path != keep and (total > target or half_written):
                    path.unlink(missing_ok=True)
                    self._maps.drop(path.name.removesuffix(SUFFIX))
                    total -= file_size
            self._total, self._unchecked = total, 0

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}{SUFFIX}"


def _map(path: Path) -> tuple[pa.RecordBatch, ...]:
    # The maps outlive the descriptor.
    with pa.memory_map(str(path)) as source:
        reader = pa.ipc.open_file(source)
        batches = tuple(reader.get_batch(number) for number in range(reader.num_record_batches))
    for batch in batches:
        batch.validate()
    return batches


def _files_under(folder: Path) -> Iterator[tuple[Path, float, int]]:
    """Yield the path, modification time and size of every file, skipping files that are deleted meanwhile."""
    for path in folder.rglob("*"):
        try:
            status = path.stat()
        except OSError:
            continue
        if path.is_file():
            yield path, status.st_mtime, status.st_size
