"""Locks on files, which the kernel takes back when their holder dies, however it dies."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


def try_lock(path: Path, *, shared: bool = False) -> int | None:
    """Gives back the open file that holds the lock, or None if another holds it; `unlock` or death lets it go."""
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
    """Says whether anybody holds the lock alone, on this machine in whichever container; a look makes no file.

    The look holds the lock itself, shared and for a moment: who takes it alone has to try more than once.
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
    """Gives back the open file that holds the lock, or None after `timeout` seconds; `waiting` is called once if it
    has to wait."""
    deadline = time.monotonic() + timeout
    told = False
    while True:
        file = try_lock(path, shared=shared)
        if file is not None or time.monotonic() > deadline:
            return file
        if waiting is not None and not told:
            waiting()
            told = True
        time.sleep(0.05)


@contextmanager
def locked(path: Path, *, timeout: float, waiting: Callable[[], None] | None = None) -> Iterator[None]:
    """Holds the lock while its block runs; a TimeoutError if another holds it for longer than `timeout` seconds."""
    file = wait_for_lock(path, timeout=timeout, waiting=waiting)
    if file is None:
        raise TimeoutError(f"{path} is locked")
    try:
        yield
    finally:
        unlock(file)
