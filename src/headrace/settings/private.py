"""Keep state private: folders get mode 0700 and files 0600, unless `state.shared` is set.

New files get their mode from the process's umask, which the servers that a command starts inherit. Folders of an earlier
version are restricted: inside a folder that only its owner can enter, other permissions don't matter. A folder with the
sticky or the setgid bit is shared on purpose, as /tmp is, and is not changed.
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
    """Make all files that this process creates from now on private, and restrict existing state. Idempotent.

    This covers the home folder, and the warehouse and the SQLite catalog if they are elsewhere on this machine.
    """
    global _inherited
    if settings.state_shared:
        return
    before = os.umask(_OTHERS)
    if _inherited is None:
        _inherited = before
    for path in _state_paths(settings):
        _restrict(path)


@contextmanager
def inherited_umask() -> Iterator[None]:
    """Create files in this block with the umask of the user's shell: output for other programs is not state."""
    if _inherited is None:
        yield
        return
    private = os.umask(_inherited)
    try:
        yield
    finally:
        os.umask(private)


@contextmanager
def private_state(settings: Settings) -> Iterator[None]:
    """Make all files that this process creates in this block private, and restrict existing state, for use as a library."""
    if settings.state_shared:
        yield
        return
    for path in _state_paths(settings):
        _restrict(path)
    before = os.umask(_OTHERS)
    try:
        yield
    finally:
        os.umask(before)


def _state_paths(settings: Settings) -> Iterator[Path]:
    yield settings.home
    if settings.warehouse.startswith("file:"):
        yield Path(urlsplit(settings.warehouse).path)
    if settings.catalog_uri.startswith("sqlite:///"):
        yield Path(settings.catalog_uri.removeprefix("sqlite:///"))


def _restrict(path: Path) -> None:
    try:
        status = path.stat()
        mode = stat.S_IMODE(status.st_mode)
        if mode & _OTHERS and not mode & _SHARED and status.st_uid == os.geteuid():
            path.chmod(mode & ~_OTHERS)
    except OSError:
        pass  # it does not exist yet, or its file system has no permissions
