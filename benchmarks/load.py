"""Sends requests over HTTP as fast as they are answered, over many connections at once, and keeps how long each took."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

_END_OF_HEAD = b"\r\n\r\n"
_LENGTH = b"content-length: "


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


def drive(port: int, request_of: Callable[[str], bytes], *, prefix: str, connections: int, seconds: float) -> Load:
    """Gives back what came of that many seconds of requests; each has a name of its own, which begins with `prefix`."""
    return asyncio.run(_drive(port, request_of, prefix, connections, seconds))


async def _drive(port: int, request_of: Callable[[str], bytes], prefix: str, connections: int, seconds: float) -> Load:
    load = Load()
    names = (f"{prefix}-{number}" for number in range(1_000_000_000))
    started = time.perf_counter()
    await asyncio.gather(*(_one(port, request_of, names, load, until=started + seconds) for _ in range(connections)))
    load.seconds = time.perf_counter() - started
    return load


async def _one(port: int, request_of: Callable[[str], bytes], names: Iterator[str], load: Load, *, until: float) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    while (began := time.perf_counter()) < until:
        name = next(names)
        writer.write(request_of(name))
        head = await reader.readuntil(_END_OF_HEAD)
        at = head.lower().index(_LENGTH) + len(_LENGTH)
        await reader.readexactly(int(head[at : head.index(b"\r\n", at)]))
        load.waits.append(time.perf_counter() - began)
        if head.startswith(b"HTTP/1.1 200"):
            load.acknowledged.append(name)
        else:
            load.refused += 1
    writer.close()
