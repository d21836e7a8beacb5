"""Bound the memory of request bodies whose senders are not authenticated yet.

Each sender may send a megabyte before its signature can be checked, and hundreds may send at once. All bodies share a budget. A
body's first kilobytes are free, so that ordinary webhooks never wait for slow senders of long bodies.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

TOTAL_BYTES = 32 * 1024**2
FREE_BYTES = 16 * 1024
WAIT_SECONDS = 5.0
SLOW_AFTER_SECONDS = 2.0


class BudgetError(Exception):
    """The budget has no room for the rest of this body."""


@dataclass(eq=False)
class Share:
    """One body's share of the budget. `is_dropped` means that the body was cancelled to make room for others."""

    since: float = 0.0
    taken: int = 0
    task: asyncio.Task[bytes | None] | None = None
    is_dropped: bool = False


class BodyBudget:
    """The budget in bytes of all bodies that one event loop is receiving."""

    def __init__(
        self,
        *,
        total: int = TOTAL_BYTES,
        free: int = FREE_BYTES,
        wait: float = WAIT_SECONDS,
        slow_after: float = SLOW_AFTER_SECONDS,
    ) -> None:
        self._total = total
        self._free = free
        self._wait = wait
        self._slow_after = slow_after
        self._shares: dict[Share, None] = {}
        self._released: asyncio.Event | None = None
        self._used = 0

    @property
    def used(self) -> int:
        return self._used

    @contextmanager
    def share(self) -> Iterator[Share]:
        """Yield the share of a body, and return its bytes to the budget at the end."""
        share = Share()
        self._shares[share] = None
        try:
            yield share
        finally:
            self._shares.pop(share, None)
            self._give_back(share)

    async def take(self, share: Share, length: int) -> None:
        """Wait until a body of this length has room. Raise a BudgetError if there is none within the wait.

        Its sender is not read from meanwhile. The slowest long body is cancelled to make room, and this one continues when that
        body has left the memory.
        """
        wanted = max(length - self._free, 0) - share.taken
        deadline = time.monotonic() + self._wait
        dropped: list[asyncio.Task[bytes | None]] = []
        while wanted > 0 and self._used + wanted > self._total:
            oldest = self._drop_oldest(share)
            if oldest is not None:
                dropped.append(oldest)
                continue
            left = deadline - time.monotonic()
            if left <= 0 or wanted > self._total:
                raise BudgetError
            self._released = self._released or asyncio.Event()
            try:
                await asyncio.wait_for(self._released.wait(), min(left, self._slow_after))
            except asyncio.TimeoutError:
                continue
        if wanted > 0:
            if not share.taken:
                share.since = time.monotonic()  # the wait for room does not count as slow
            share.taken += wanted
            self._used += wanted
        if dropped:
            await asyncio.wait(dropped)

    def _drop_oldest(self, asking: Share) -> asyncio.Task[bytes | None] | None:
        now = time.monotonic()
        for share in self._shares:  # oldest first
            if share is not asking and share.taken and share.task is not None and now - share.since > self._slow_after:
                share.is_dropped = True
                share.task.cancel()
                self._shares.pop(share)
                self._give_back(share)
                return share.task
        return None

    def _give_back(self, share: Share) -> None:
        self._used -= share.taken
        share.taken = 0
        if self._released is not None:
            self._released.set()
            self._released = None
