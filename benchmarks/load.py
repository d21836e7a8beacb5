"""Sends requests over HTTP as fast as they are answered, over many connections at once, and keeps how long each took.

One thread looks after all connections and does as little as it can: on a machine with few cores, what the load costs is taken
away from what is measured.
"""

from __future__ import annotations

import selectors
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

Request = Callable[[str], bytes]
"""Makes the whole request that has a name."""
_END_OF_HEAD = b"\r\n\r\n"
_LENGTH = b"content-length: "
_BYTES = 64 * 1024
_PATIENCE_SECONDS = 30.0


@dataclass
class Load:
    """What came of a turn: the seconds that each answer took, and the names that were acknowledged with 200."""

    seconds: float = 0.0
    waits: list[float] = field(default_factory=list)
    acknowledged: list[str] = field(default_factory=list)
    refused: int = 0

    @property
    def per_second(self) -> float:
        return len(self.waits) / self.seconds

    @property
    def p99_ms(self) -> float:
        return sorted(self.waits)[int(len(self.waits) * 0.99)] * 1000


@dataclass
class _Connection:
    """A connection, and the request that is on its way."""

    socket: socket.socket
    name: str = ""
    began: float = 0.0
    received: bytes = b""

    def ask(self, request_of: Request, name: str) -> None:
        self.name, self.began, self.received = name, time.perf_counter(), b""
        self.socket.sendall(request_of(name))

    def is_answered(self) -> bool:
        """Read what is there, and return whether that is the whole answer."""
        new = self.socket.recv(_BYTES)
        if not new:
            raise ConnectionError(f"the server closed a connection after {self.received[:100]!r}")
        self.received += new
        head = self.received.find(_END_OF_HEAD)
        if head < 0:
            return False
        at = self.received.index(_LENGTH) + len(_LENGTH)
        length = int(self.received[at : self.received.index(b"\r", at)])
        return len(self.received) >= head + len(_END_OF_HEAD) + length


def drive(port: int, request_of: Request, *, prefix: str, connections: int, seconds: float) -> Load:
    """Return what came of that many seconds of requests; each has a name of its own, which begins with `prefix`."""
    load = Load()
    names = (f"{prefix}-{number}" for number in range(1_000_000_000))
    opened = [_Connection(socket.create_connection(("127.0.0.1", port), timeout=_PATIENCE_SECONDS)) for _ in range(connections)]
    try:
        with selectors.DefaultSelector() as selector:
            for connection in opened:
                connection.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                selector.register(connection.socket, selectors.EVENT_READ, connection)
            started = time.perf_counter()
            _ask_until(selector, opened, request_of, names, load, until=started + seconds)
            load.seconds = time.perf_counter() - started
    finally:
        for connection in opened:
            connection.socket.close()
    return load


def _ask_until(
    selector: selectors.BaseSelector,
    opened: list[_Connection],
    request_of: Request,
    names: Iterator[str],
    load: Load,
    *,
    until: float,
) -> None:
    """Ask on every connection again and again; requests that are on their way at the end are waited for."""
    for idle in opened:
        idle.ask(request_of, next(names))
    left = len(opened)
    while left:
        ready = selector.select(_PATIENCE_SECONDS)
        if not ready:
            raise TimeoutError(f"{left} requests were not answered within {_PATIENCE_SECONDS:.0f} seconds")
        for key, _ in ready:
            connection: _Connection = key.data
            if not connection.is_answered():
                continue
            now = time.perf_counter()
            load.waits.append(now - connection.began)
            if connection.received.startswith(b"HTTP/1.1 200"):
                load.acknowledged.append(connection.name)
            else:
                load.refused += 1
            if now < until:
                connection.ask(request_of, next(names))
            else:
                left -= 1
