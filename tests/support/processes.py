"""Processes and ports, as tests look at them."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager

import psutil


def is_gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


@contextmanager
def taken(port: int) -> Iterator[None]:
    """Has a program listen on a port while the block runs; if another one does already, that is just as good."""
    with socket.socket() as blocker:
        blocker.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            blocker.bind(("127.0.0.1", port))
            blocker.listen()
        except OSError:
            pass
        yield
