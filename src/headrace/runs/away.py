"""Servers that are away for a while: which errors say so, and how long a command waits for them.

Kafka, the catalog, its database and the object store each have their own way to be gone, and each is told by the library that
met it first: PyIceberg, pyarrow, confluent-kafka, or a Java class inside Spark. This is the one place that knows them all.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from threading import Event
from typing import TypeVar

from headrace.errors import HeadraceError, RetryableError
from headrace.services.embedded import Report

T = TypeVar("T")
PATIENCE_SECONDS = 300.0
"""For how long a command that ends by itself waits for servers; one that is live waits for ever."""

_LONGEST_PAUSE_SECONDS = 10.0
_GONE = re.compile(
    r"Connection refused|Connection reset|Connection aborted|NETWORK_CONNECTION|Max retries exceeded|ConnectException"
    r"|HttpHostConnectException|NoHttpResponseException|SocketTimeoutException|SocketException|UnknownHostException"
    r"|Unable to execute HTTP request|ServiceUnavailable|ServiceFailureException|_TRANSPORT|_ALL_BROKERS_DOWN"
    r"|RESTError 50[0-9]|UncheckedSQLConnectionException|the database system is (?:starting up|shutting down)"
)
_WHO = (
    ("the object store", re.compile(r"AWS Error|awssdk|S3FileIO|SdkClientException|\bs3[:.]", re.IGNORECASE)),
    ("Kafka", re.compile(r"kafka|_TRANSPORT|_ALL_BROKERS_DOWN", re.IGNORECASE)),
    ("the catalog", re.compile(r"")),
)


def explain_away(error: BaseException) -> str | None:
    """Gives back in words which server is away, or None where an error means something else."""
    if isinstance(error, RetryableError):
        return error.what.splitlines()[0]
    if isinstance(error, HeadraceError) and error.__cause__ is None:
        return None
    text = "\n".join(f"{type(each).__name__}: {each}" for each in _chain(error))
    if not _GONE.search(text):
        return None
    who = next(name for name, pattern in _WHO if pattern.search(text))
    return f"{who} does not answer"


class Patience:
    """Waits for servers that are away, says so, and says when they are back.

    `most_seconds` is how long it waits for them at a time; None is for ever. It ends at once when `stop` is set.
    """

    def __init__(self, report: Report, *, most_seconds: float | None, stop: Event | None = None) -> None:
        self._report = report
        self._most_seconds = most_seconds
        self._stop = stop or Event()
        self._since: float | None = None

    def wait(self, error: BaseException) -> bool:
        """Gives back whether to try again: after a while if a server is away, not if the error is another, or for too long."""
        what = explain_away(error)
        if what is None or self._stop.is_set():
            return False
        now = time.monotonic()
        self._since = now if self._since is None else self._since
        waited = now - self._since
        if self._most_seconds is not None and waited >= self._most_seconds:
            return False
        pause = min(_LONGEST_PAUSE_SECONDS, max(1.0, waited))
        self._report(f"{what}; trying again in {pause:.0f} s")
        self._stop.wait(pause)
        return True

    def answered(self) -> None:
        """Takes note that all servers answer."""
        if self._since is not None:
            self._report(f"all servers answer again, after {time.monotonic() - self._since:.0f} s")
        self._since = None

    def try_until_answered(self, act: Callable[[], T]) -> T:
        """Gives back what `act`, which can be repeated, gives back once no server that it needs is away."""
        while True:
            try:
                done = act()
            except Exception as error:
                if not self.wait(error):
                    raise
            else:
                self.answered()
                return done


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__
