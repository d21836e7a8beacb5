"""Generate traffic on a source database: synthetic transactions at a rate, in a thread, until it is stopped."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from random import Random

import psycopg
from psycopg import Connection

Act = Callable[[Connection, Random, datetime], str]
"""Runs one action in the given transaction, and returns the action's name."""

_AGAIN_SECONDS = 0.5
_AT_MOST_BEHIND = 1.0
_END_SECONDS = 30.0


@dataclass(frozen=True)
class TrafficStatus:
    """The status of traffic. `acts` counts committed transactions by action; `rolled_back` ones were rolled back on purpose,
    and `failed` ones were not."""

    running: bool = False
    rate: float | None = None
    seed: int | None = None
    started_at: datetime | None = None
    committed: int = 0
    rolled_back: int = 0
    failed: int = 0
    per_second: float = 0.0
    last_error: str | None = None
    acts: Mapping[str, int] = field(default_factory=dict)


class Traffic:
    """Traffic on a database. It reconnects after a lost connection, so it continues after an outage."""

    def __init__(self, dsn: str, act: Act) -> None:
        self._dsn, self._act = dsn, act
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._rate: float | None = None
        self._seed: int | None = None
        self._started: datetime | None = None
        self._forget()

    def start(self, *, rate: float, seed: int) -> bool:
        """Start traffic. Return False if it is already running."""
        with self._lock:
            if self._thread is not None and self._thread.is_alive():
                return False
            self._forget()
            self._rate, self._seed, self._started = rate, seed, datetime.now(timezone.utc)
            self._began = time.monotonic()
            self._stop = threading.Event()
            self._thread = threading.Thread(target=self._run, args=(self._stop, rate, seed), name="traffic", daemon=True)
            self._thread.start()
            return True

    def stop(self) -> bool:
        """Stop traffic after the current transaction. Return whether it was running."""
        with self._lock:
            thread, self._thread = self._thread, None
            self._stop.set()
        if thread is None:
            return False
        thread.join(_END_SECONDS)
        return True

    def status(self) -> TrafficStatus:
        running = self._thread is not None and self._thread.is_alive()
        committed = sum(self._acts.values())
        seconds = (time.monotonic() if running else self._ended) - self._began
        return TrafficStatus(
            running=running,
            rate=self._rate,
            seed=self._seed,
            started_at=self._started,
            committed=committed,
            rolled_back=self._rolled_back,
            failed=self._failed,
            per_second=round(committed / seconds, 1) if seconds > 0 else 0.0,
            last_error=self._last_error,
            acts=dict(sorted(self._acts.items())),
        )

    def _forget(self) -> None:
        self._acts: Counter[str] = Counter()
        self._rolled_back = self._failed = 0
        self._last_error: str | None = None
        self._began = self._ended = 0.0

    def _run(self, stop: threading.Event, rate: float, seed: int) -> None:
        random = Random(f"traffic {seed}")  # not the numbers that filled the tables, even with the same seed
        try:
            while not stop.is_set():
                try:
                    with psycopg.connect(self._dsn, autocommit=True, connect_timeout=5) as connection:
                        self._run_transactions(connection, stop, random, 1 / rate)
                except psycopg.Error as error:
                    self._note(error)
                    stop.wait(_AGAIN_SECONDS)
        finally:
            self._ended = time.monotonic()

    def _run_transactions(self, connection: Connection, stop: threading.Event, random: Random, every: float) -> None:
        due = time.monotonic()
        while not stop.wait(max(0.0, due - time.monotonic())):
            # After falling behind, catch up on at most a second of transactions.
            due = max(due + every, time.monotonic() - _AT_MOST_BEHIND)
            name: str | None = None
            try:
                with connection.transaction():
                    name = self._act(connection, random, datetime.now(timezone.utc))
            except psycopg.Error as error:
                if connection.closed or connection.broken:
                    raise
                self._note(error)
                continue
            if name is None:
                self._rolled_back += 1
            else:
                self._acts[name] += 1

    def _note(self, error: psycopg.Error) -> None:
        self._failed += 1
        message = error.diag.message_primary or str(error) or type(error).__name__
        self._last_error = message.splitlines()[0]
