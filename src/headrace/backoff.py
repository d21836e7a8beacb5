"""How long and how often failed work is retried: the policy of every retry in Headrace."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from threading import Event
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from tenacity import RetryCallState

T = TypeVar("T")
_MOST_DOUBLINGS = 30  # a float would overflow after a thousand


@dataclass(frozen=True)
class Backoff:
    """Pauses double from `first` to `longest` seconds. Without `attempts` and `seconds`, retries have no limit."""

    first: float
    longest: float = math.inf
    attempts: int | None = None
    seconds: float | None = None

    def pause(self, failures: int) -> float:
        """Return the seconds to wait after this many failures in a row."""
        return min(self.longest, self.first * 2.0 ** min(failures - 1, _MOST_DOUBLINGS))

    def retry(
        self,
        attempt: Callable[[], T],
        *,
        on: Callable[[Exception], bool],
        pause: Callable[[Exception], float] | None = None,
        stop: Event | None = None,
    ) -> T:
        """Return the result of `attempt`, retrying errors for which `on` is true.

        `pause` returns the seconds to wait after an error, and may raise it. Raises the last error unchanged after the limit,
        or when `stop` is set.
        """
        import tenacity  # takes 20 to 40 ms, which most commands don't need to wait for

        def is_retried(error: BaseException) -> bool:
            return isinstance(error, Exception) and on(error)

        def wait(state: RetryCallState) -> float:
            error = _error_of(state)
            return pause(error) if pause is not None and isinstance(error, Exception) else self.pause(state.attempt_number)

        def end_if_stopped(state: RetryCallState) -> None:
            error = _error_of(state)
            if stop is not None and stop.wait(state.upcoming_sleep) and error is not None:
                raise error

        limit = tenacity.stop_any(
            tenacity.stop_never if self.attempts is None else tenacity.stop_after_attempt(self.attempts),
            tenacity.stop_never if self.seconds is None else tenacity.stop_after_delay(self.seconds),
        )
        retrying = tenacity.Retrying(
            stop=limit,
            wait=wait,
            retry=tenacity.retry_if_exception(is_retried),
            before_sleep=end_if_stopped,
            sleep=time.sleep if stop is None else lambda seconds: None,  # `end_if_stopped` has waited
            reraise=True,
        )
        return retrying(attempt)


OUTAGES = Backoff(1.0, longest=10.0)
"""An outage of the catalog, the object store or Postgres. Commands that have to end limit it to five minutes."""

COMMITS = Backoff(0.1, attempts=8)
COMPACTIONS = Backoff(0.1, attempts=6)
CATALOG_TABLES = Backoff(0.0, attempts=3)
"""Two applications that create the tables of a catalog at once: both find them in a later attempt."""

STREAMS = Backoff(1.0, longest=60.0)
"""A stream that fails to land while the others continue."""

TABLES = Backoff(5.0, longest=300.0)
"""A table that fails to build in a live run, in which the others are built."""

BUILDS = Backoff(1.0, attempts=3)
BUILDS_BESIDE_COMPACTION = Backoff(0.0, attempts=20)
"""A build whose table was compacted meanwhile: it is planned again at once."""

DOWNLOADS = Backoff(1.0, attempts=3)
CONNECT_REQUESTS = Backoff(0.3, longest=0.3, seconds=60.0)
"""A Kafka Connect worker that is starting or rebalancing."""

TOPIC_LEADERS = Backoff(0.1, longest=0.1, seconds=15.0)
"""A new topic, whose partitions have no leader yet."""

TRINO_NODES = Backoff(0.5, longest=0.5, seconds=30.0)
"""A Trino that has just started, and has not registered itself as a node yet."""

HTTP_EVENTS = Backoff(0.5, longest=0.5, seconds=60.0)
"""A generated event that the server did not accept. The server's `Retry-After` takes precedence."""


def _error_of(state: RetryCallState) -> BaseException | None:
    return None if state.outcome is None else state.outcome.exception()
