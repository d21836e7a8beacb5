"""Record which files were verified by their hash since the machine booted.

A file counts as unchanged while its inode, size, modification time and change time are the same; only root can reset the change
time. After a boot every file is hashed again, because another system may have changed the disk.
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


def read_verified(memory: Path, *, folder: Path) -> tuple[Path, ...]:
    """Return the paths that were verified since the boot, or none if one of them has changed."""
    try:
        known = json.loads(memory.read_bytes())
        if known["boot"] != boot_id():
            return ()
        paths = tuple(folder / path for path, _ in known["files"])
        unchanged = all(_mark(path) == mark for path, (_, mark) in zip(paths, known["files"], strict=True))
    except (OSError, ValueError, TypeError, KeyError):
        return ()
    return paths if unchanged else ()


def record_verified(memory: Path, paths: Iterable[Path], *, folder: Path) -> None:
    """Record that these paths are verified. If the cache is read-only, nothing is recorded and every use hashes its files."""
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
    """Return the sha256 of a file, or None if it does not exist."""
    try:
        with open(path, "rb") as file:
            return hash_stream(file)
    except FileNotFoundError:
        return None


def tampered(path: Path, *, reason: str, remove: Path) -> ServiceError:
    """Return the error for a cached file that differs from its hash. Such a file is never run."""
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
    status = os.lstat(path)
    return [status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns]
