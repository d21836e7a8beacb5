"""Retry policy of failing streams: each retries alone with exponential backoff, and its traceback is in the log."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from headrace.backoff import STREAMS
from headrace.errors import HeadraceError, LandingError, RetryableError, TakenOverError, UnavailableError
from headrace.iceberg.catalog.outages import find_outage

_MOST_AWAY = 9  # the waits of 9 tries add up to five minutes


@dataclass(frozen=True)
class StreamFailure:
    """Why a stream's last try failed, and how many failed in a row. `retry_at` is on the monotonic clock."""

    error: HeadraceError
    times: int
    retry_at: float


def next_failure(before: StreamFailure | None, error: HeadraceError, *, now: float) -> StreamFailure:
    """Return the failure after one more failed try."""
    times = before.times + 1 if before else 1
    return StreamFailure(error, times, now + STREAMS.pause(times))


def seconds_until_retry(failures: Iterable[StreamFailure], *, most: int, now: float) -> float | None:
    """Return the seconds until the first retry among failures of at most `most` tries; None if there is none.

    An outage has a longer limit: five minutes.
    """
    limits = ((failure, _MOST_AWAY if isinstance(failure.error, UnavailableError) else most) for failure in failures)
    waits = [failure.retry_at - now for failure, limit in limits if failure.times <= limit]
    return max(0.0, min(waits)) if waits else None


def concerns_all(error: BaseException) -> bool:
    """Return whether an error of one stream's commit stops all streams: an outage, or another run took over."""
    if isinstance(error, (RetryableError, TakenOverError)) or not isinstance(error, Exception):
        return True
    return find_outage(error) is not None


def as_landing_error(error: BaseException, *, label: str) -> LandingError:
    """Return an unexpected error as a LandingError, which stops only its stream."""
    if isinstance(error, LandingError):
        return error
    reason = error.what if isinstance(error, HeadraceError) else f"{type(error).__name__}: {error}"
    return LandingError(reason, where=label, next_step="Read the traceback with: headrace logs landing")
