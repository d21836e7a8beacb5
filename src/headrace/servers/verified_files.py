"""Remembers which files were verified by their hash, until the machine boots again.

A file counts as unchanged while its inode, size, modification time and change time are the same; the last of them can't be set
back without root. After a boot everything is hashed again: a disk may have been changed elsewhere meanwhile.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import BinaryIO

import psutil

from headrace.errors import ServiceError

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_CHUNK = 1 << 20


def recall(memory: Path, *, folder: Path) -> tuple[Path, ...]:
    """Return the paths that were verified since the boot, or none if even one of them has changed."""
    try:
        known = json.loads(memory.read_bytes())
        if known["boot"] != boot_id():
            return ()
        paths = tuple(folder / path for path, _ in known["files"])
        unchanged = all(_mark(path) == mark for path, (_, mark) in zip(paths, known["files"], strict=True))
    except (OSError, ValueError, TypeError, KeyError):
        return ()
    return paths if unchanged else ()


def remember(memory: Path, paths: Iterable[Path], *, folder: Path) -> None:
    """Note that these paths are verified. A cache that can't be written remembers nothing: its files are hashed at each use."""
    try:
        known = {"boot": boot_id(), "files": [(str(path.relative_to(folder)), _mark(path)) for path in paths]}
        memory.parent.mkdir(parents=True, exist_ok=True)
        descriptor, written = tempfile.mkstemp(dir=memory.parent)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump(known, file)
        os.replace(written, memory)
    except OSError:
        pass


def hash_stream(file: BinaryIO) -> str:
    digest = hashlib.sha256()
    while chunk := file.read(_CHUNK):
        digest.update(chunk)
    return digest.hexdigest()


def hash_file(path: Path) -> str | None:
    """Return the sha256 of a file, or None if it is not there."""
    try:
        with open(path, "rb") as file:
            return hash_stream(file)
    except FileNotFoundError:
        return None


def tampered(path: Path, *, reason: str, remove: Path) -> ServiceError:
    """Return the error for a file in the cache that is not what it has to be. It is never run."""
    return ServiceError(
        f"{path.name} was changed after it was verified: {reason}",
        where=str(path),
        next_step=f"Find out who changed it. To get the original back, run: rm -r {remove}   then the command again.",
    )


@cache
def boot_id() -> str:
    """Return an id that changes when the machine boots."""
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:
        return str(int(psutil.boot_time()))


def _mark(path: Path) -> list[int]:
    found = os.lstat(path)
    return [found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns]
