"""Secrets that Headrace makes up for servers of its own: one file each, which its owner alone may read.

Several commands may come to one at once: each finds a file whole or not at all, and all find the same secret.
"""

from __future__ import annotations

import os
import secrets
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def keep_secret(path: Path) -> str:
    """Return the secret of a file; the first call makes it, and of several first calls all return the same."""
    try:
        return path.read_text(encoding="ascii").strip()
    except FileNotFoundError:
        path.parent.mkdir(parents=True, exist_ok=True)
    with _fresh(path, f"{secrets.token_urlsafe(24)}\n") as fresh:
        try:
            os.link(fresh, path)  # unlike a rename, it leaves a secret as it is that another has made meanwhile
        except FileExistsError:
            pass
    return path.read_text(encoding="ascii").strip()


def write_privately(path: Path, text: str) -> None:
    """Leave a file with this text that its owner alone may read. Idempotent: one that is so already is not written."""
    try:
        if path.read_text(encoding="utf-8") == text and path.stat().st_mode & 0o077 == 0:
            return
    except FileNotFoundError:
        pass
    with _fresh(path, text) as fresh:
        os.replace(fresh, path)


@contextmanager
def _fresh(path: Path, text: str) -> Iterator[str]:
    """Yield a whole file beside `path`, for its owner alone from its first byte on; under that name it ends with the block."""
    descriptor, fresh = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        yield fresh
    finally:
        Path(fresh).unlink(missing_ok=True)
