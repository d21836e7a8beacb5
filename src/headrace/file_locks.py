"""Locks on files, which the kernel takes back when their holder dies, however it dies."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

_LOOKS_SECONDS = 30.0
"""How much longer than its timeout `wait_for_lock` tries while only looks of `is_locked` are in the way. On a busy machine
a look can be suspended while it holds the lock, and a look must never make the lock seem taken."""

_HELD_PAUSE, _LOOK_PAUSE = 0.05, 0.001
"""Seconds between two tries: while another holds the lock, and while only looks are in the way."""


def try_lock(path: Path, *, shared: bool = False) -> int | None:
    """Return the open file that holds the lock, or None if another holds it; `unlock` or death lets it go."""
    path.parent.mkdir(parents=True, exist_ok=True)
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(file)
        return None
    except BaseException:
        os.close(file)
        raise
    return file


def is_locked(path: Path) -> bool:
    """Return whether anybody holds the lock alone, on this machine in whichever container; a look makes no file.

    The look holds the lock itself, shared and for a moment: `wait_for_lock` tells it from a holder and tries again.
    """
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(file)
    return False


def unlock(file: int) -> None:
    os.close(file)


def wait_for_lock(path: Path, *, shared: bool = False, timeout: float, waiting: Callable[[], None] | None = None) -> int | None:
    """Return the open file that holds the lock, or None if another holds it after `timeout` seconds.

    `waiting` is called once if another holds it. Looks of `is_locked` never count as holders.
    """
    deadline = time.monotonic() + timeout
    announced = False
    while True:
        file = try_lock(path, shared=shared)
        if file is not None:
            return file
        held = is_locked(path)
        if time.monotonic() > deadline + (0 if held else _LOOKS_SECONDS):
            return None
        if held and waiting is not None and not announced:
            waiting()
            announced = True
        time.sleep(_HELD_PAUSE if held else _LOOK_PAUSE)


@contextmanager
def locked(path: Path, *, timeout: float, waiting: Callable[[], None] | None = None) -> Iterator[None]:
    """Hold the lock while its block runs; a TimeoutError if another holds it for longer than `timeout` seconds."""
    file = wait_for_lock(path, timeout=timeout, waiting=waiting)
    if file is None:
        raise TimeoutError(f"{path} is locked")
    try:
        yield
    finally:
        unlock(file)
