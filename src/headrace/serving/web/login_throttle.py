"""Limit the login attempts of an address: a few without delay, then with exponential backoff."""

from __future__ import annotations

import ipaddress
import time
from collections import OrderedDict
from collections.abc import Callable

FREE_TRIES = 5
LONGEST_SECONDS = 60.0
_MOST_ADDRESSES = 1_000
_FORGET_SECONDS = 600.0


class LoginThrottle:
    """Failed attempts by address. IPv6 addresses count by their /64 network, which usually belongs to one client."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._failures: OrderedDict[str, tuple[int, float]] = OrderedDict()

    def wait_seconds(self, address: str) -> float:
        """Return how long this address must wait before its next attempt; 0 if it may try now."""
        count, last = self._failures.get(_network(address), (0, 0.0))
        if count < FREE_TRIES:
            return 0.0
        pause = min(2.0 ** (count - FREE_TRIES), LONGEST_SECONDS)
        return max(last + pause - self._clock(), 0.0)

    def fail(self, address: str) -> None:
        """Record a wrong token."""
        network, now = _network(address), self._clock()
        count, last = self._failures.pop(network, (0, now))
        self._failures[network] = (1 if now - last > _FORGET_SECONDS else count + 1, now)
        if len(self._failures) > _MOST_ADDRESSES:
            self._failures.popitem(last=False)

    def succeed(self, address: str) -> None:
        self._failures.pop(_network(address), None)


def _network(address: str) -> str:
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    return str(ipaddress.ip_network((parsed, 64), strict=False)) if parsed.version == 6 else address
