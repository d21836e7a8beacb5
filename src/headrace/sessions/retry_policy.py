"""Waits while a server is away: says so once, and once that it goes on."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from threading import Event
from typing import TypeVar

from headrace.errors import HeadraceError, RetryableError
from headrace.iceberg.catalog.outages import translate_outages
from headrace.logs import log_fields
from headrace.servers.embedded import Report

T = TypeVar("T")
_LOG = logging.getLogger(__name__)
_FOR_A_COMMAND_SECONDS = 300.0
_FIRST_PAUSE_SECONDS = 1.0
_LONGEST_PAUSE_SECONDS = 10.0


class RetryPolicy:
    """How long one who needs a server has waited for it; `who` is what people call that one.

    Pauses grow from one second to ten. With `seconds`, the error is raised once it has waited for that long.
    """

    def __init__(self, who: str, *, report: Report, seconds: float | None = None) -> None:
        self._who = who
        self._report = report
        self._seconds = seconds
        self._since = 0.0
        self._pause = 0.0

    @property
    def is_waiting(self) -> bool:
        return self._pause > 0

    def next_pause(self, error: HeadraceError) -> float:
        """Return for how many seconds to wait before the next try; the first one is told."""
        now = time.monotonic()
        if not self.is_waiting:
            self._since = now
            what = error.what if isinstance(error, RetryableError) else str(error)
            self._report(f"{self._who}: {what}; waiting, and trying again until it goes on")
            _LOG.info("waiting to try again", extra=log_fields(who=self._who, error=type(error).__name__))
        elif self._seconds is not None and now - self._since > self._seconds:
            raise error
        self._pause = min(_LONGEST_PAUSE_SECONDS, max(_FIRST_PAUSE_SECONDS, self._pause * 2))
        return self._pause

    def goes_on(self) -> None:
        """Say so, if it was said that it waits."""
        if self.is_waiting:
            seconds = time.monotonic() - self._since
            self._report(f"{self._who}: going on after {seconds:.0f} s")
            _LOG.info("going on", extra=log_fields(who=self._who, seconds=round(seconds, 3)))
        self._pause = 0.0

    def keep_trying(self, attempt: Callable[[], T], *, stop: Event) -> T:
        """Return what `attempt` and return as soon as it does so; its error where `stop` is set before."""
        while True:
            try:
                found = attempt()
            except RetryableError as error:
                if stop.wait(self.next_pause(error)):
                    raise
                continue
            self.goes_on()
            return found


def retry(attempt: Callable[[], T], retry_policy: RetryPolicy | None, *, stop: Event | None = None) -> T:
    """Return what `attempt` and return, which is tried again while the catalog or the object store is away; without
    `retry_policy` that is an UnavailableError at once."""

    def look() -> T:
        with translate_outages():
            return attempt()

    return look() if retry_policy is None else retry_policy.keep_trying(look, stop=stop or Event())


def for_command(who: str, *, report: Report) -> RetryPolicy:
    """Return the patience of a command that is to end: five minutes. One that runs until it is stopped waits for as long as
    it takes."""
    return RetryPolicy(who, report=report, seconds=_FOR_A_COMMAND_SECONDS)
