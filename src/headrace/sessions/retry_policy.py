"""Retry during outages, and report an outage once at its start and once at its end."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from threading import Event
from typing import TypeVar

from headrace.backoff import OUTAGES
from headrace.errors import RetryableError
from headrace.iceberg.catalog.outages import translate_outages
from headrace.logs import log_fields
from headrace.servers.embedded import Report

T = TypeVar("T")
_LOG = logging.getLogger(__name__)
_FOR_A_COMMAND_SECONDS = 300.0


class RetryPolicy:
    """The retries of one task, called `task` in reports, with the pauses of OUTAGES.

    With `seconds`, the error is raised once the outage has lasted that long.
    """

    def __init__(self, task: str, *, report: Report, seconds: float | None = None) -> None:
        self._task = task
        self._report = report
        self._seconds = seconds
        self._since = 0.0
        self._failures = 0

    @property
    def is_waiting(self) -> bool:
        return self._failures > 0

    def next_pause(self, error: Exception) -> float:
        """Return the seconds to wait before the next retry. Report the outage at its first error. Raise it after the limit."""
        now = time.monotonic()
        if not self.is_waiting:
            self._since = now
            what = error.what if isinstance(error, RetryableError) else str(error)
            self._report(f"{self._task}: {what}; retrying until it succeeds")
            _LOG.info("retrying", extra=log_fields(task=self._task, error=type(error).__name__))
        elif self._seconds is not None and now - self._since > self._seconds:
            raise error
        self._failures += 1
        return OUTAGES.pause(self._failures)

    def goes_on(self) -> None:
        """Report the end of the outage, if one was reported."""
        if self.is_waiting:
            seconds = time.monotonic() - self._since
            self._report(f"{self._task}: recovered after {seconds:.0f} s")
            _LOG.info("recovered", extra=log_fields(task=self._task, seconds=round(seconds, 3)))
        self._failures = 0

    def keep_trying(self, attempt: Callable[[], T], *, stop: Event) -> T:
        """Return the result of `attempt`, retrying during outages. Raise its error if `stop` is set."""
        result = OUTAGES.retry(attempt, on=lambda error: isinstance(error, RetryableError), pause=self.next_pause, stop=stop)
        self.goes_on()
        return result


def retry(attempt: Callable[[], T], retry_policy: RetryPolicy | None, *, stop: Event | None = None) -> T:
    """Return the result of `attempt`, retrying while the catalog or the object store is unavailable. Without `retry_policy`,
    raise the UnavailableError at once."""

    def attempt_once() -> T:
        with translate_outages():
            return attempt()

    return attempt_once() if retry_policy is None else retry_policy.keep_trying(attempt_once, stop=stop or Event())


def for_command(task: str, *, report: Report) -> RetryPolicy:
    """Return the retry policy of a command that has to end: five minutes. Long-running commands retry without a limit."""
    return RetryPolicy(task, report=report, seconds=_FOR_A_COMMAND_SECONDS)
