"""A thread-safe cache in memory that drops the least recently used entries when it is full."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from threading import Lock
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class BoundedCache(Generic[K, V]):
    """Values by key, each with a weight; the weights never add up to more than `most`.

    A value that alone weighs more is not kept. `build` may run twice for one key when two threads miss it at once, so it must
    be repeatable.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._entries: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self._weight = 0
        self._lock = Lock()

    def get(self, key: K) -> V | None:
        """Return the value of `key` and mark it as used, or None."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                return None
            self._entries.move_to_end(key)
            return entry[0]

    def put(self, key: K, value: V, *, weight: int = 1) -> None:
        """Store a value, replacing an earlier one."""
        with self._lock:
            self._drop(key)
            if weight > self._most:
                return
            self._entries[key] = (value, weight)
            self._weight += weight
            while self._weight > self._most:
                self._drop(next(iter(self._entries)))

    def get_or_build(self, key: K, build: Callable[[], V], *, weigh: Callable[[V], int] = lambda value: 1) -> V:
        """Return the value of `key`, built and stored if it is missing."""
        value = self.get(key)
        if value is None:
            value = build()
            self.put(key, value, weight=weigh(value))
        return value

    def has_room(self, weight: int) -> bool:
        """Return whether a value of this weight can be stored without dropping another one."""
        with self._lock:
            return self._weight + weight <= self._most

    def clear(self) -> None:
        """Forget all values."""
        with self._lock:
            self._entries.clear()
            self._weight = 0

    def drop(self, key: K) -> None:
        """Forget a value. Idempotent."""
        with self._lock:
            self._drop(key)

    def __len__(self) -> int:
        with self._lock:
            return len(self._entries)

    def _drop(self, key: K) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._weight -= entry[1]
