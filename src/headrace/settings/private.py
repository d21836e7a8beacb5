"""Keeps state private: folders 0700 and files 0600, for its owner alone, unless `state.shared` is set.

New files follow from the process's umask, which the servers that a command starts inherit. Folders of an earlier version are
tightened: behind a folder that only its owner can enter, the permissions inside don't matter. A folder with the sticky or the
setgid bit is shared on purpose, as /tmp is, and stays as it is.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from headrace.settings.values import Settings

_OTHERS = 0o077
_SHARED = stat.S_ISVTX | stat.S_ISGID
_inherited: int | None = None


def protect_state(settings: Settings) -> None:
    """Make what this process creates from here on private, and tighten state that exists. Idempotent.

    It covers the home and, where they are elsewhere on this machine, the warehouse and the SQLite catalog.
    """
    global _inherited
    if settings.state_shared:
        return
    before = os.umask(_OTHERS)
    if _inherited is None:
        _inherited = before
    for path in _state_of(settings):
        _tighten(path)


@contextmanager
def inherited_umask() -> Iterator[None]:
    """Create files with the permissions that the user's shell asks for: what a command writes for others is no state."""
    if _inherited is None:
        yield
        return
    private = os.umask(_inherited)
    try:
        yield
    finally:
        os.umask(private)


def _state_of(settings: Settings) -> Iterator[Path]:
    yield settings.home
    if settings.warehouse.startswith("file:"):
        yield Path(urlsplit(settings.warehouse).path)
    if settings.catalog_uri.startswith("sqlite:///"):
        yield Path(settings.catalog_uri.removeprefix("sqlite:///"))


def _tighten(path: Path) -> None:
    try:
        found = path.stat()
        mode = stat.S_IMODE(found.st_mode)
        if mode & _OTHERS and not mode & _SHARED and found.st_uid == os.geteuid():
            path.chmod(mode & ~_OTHERS)
    except OSError:
        pass  # it is not there yet, or its file system has no permissions
