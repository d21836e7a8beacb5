"""A client that sends bytes as they are, whether they are HTTP or not."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable

AT_ONCE = 16
ANSWER_SECONDS = 30.0
CHUNKED = b"transfer-encoding"
LIE = b"and there is no more"
"""How a body ends that is shorter than its request says."""


async def ask(port: int, request: bytes) -> int:
    """Return the status of the answer, or 0 where the connection was ended without one."""
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return 0
    try:
        writer.write(request)
        if request.endswith(LIE) or CHUNKED in request:  # the server may wait for more
            writer.write_eof()
        line = await asyncio.wait_for(reader.readline(), ANSWER_SECONDS)
        while line.startswith(b"HTTP/1.1 100"):
            await reader.readline()
            line = await asyncio.wait_for(reader.readline(), ANSWER_SECONDS)
        return int(line.split()[1]) if line else 0
    except (OSError, asyncio.TimeoutError, ValueError):
        return 0
    finally:
        writer.close()


async def ask_all(port: int, requests: Iterable[bytes], *, at_once: int = AT_ONCE) -> Counter[int]:
    """Return how often each status was answered; so many requests are under way at a time."""
    codes: Counter[int] = Counter()
    left = iter(requests)

    async def one_after_another() -> None:
        for request in left:
            codes[await ask(port, request)] += 1

    await asyncio.gather(*(one_after_another() for _ in range(at_once)))
    return codes


async def hold(port: int, sent: bytes, *, number: int, seconds: float) -> Counter[int]:
    """Open connections that send this and then nothing; return how they were answered once the time is over."""

    async def one() -> int:
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            return 0
        try:
            writer.write(sent)
            line = await asyncio.wait_for(reader.readline(), seconds)
            return int(line.split()[1]) if line else 0
        except asyncio.TimeoutError:
            return -1
        except (OSError, ValueError):
            return 0
        finally:
            writer.close()

    return Counter(await asyncio.gather(*(one() for _ in range(number))))
