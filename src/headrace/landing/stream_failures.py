"""Fail or stop one stream of a pipeline while the others go on, and log why."""

from __future__ import annotations

import logging
import time
import traceback

from headrace.errors import HeadraceError, LandingError
from headrace.landing.failures import as_landing_error, concerns_all, next_failure
from headrace.landing.landed import LandingStream
from headrace.logs import LANDING, log_failure
from headrace.settings import Settings

_LOG = logging.getLogger(__name__)


class StreamFailures:
    """Records and logs the failures of a pipeline's streams."""

    def __init__(self, settings: Settings, pipeline: str) -> None:
        self._settings = settings
        self._pipeline = pipeline

    def fail(self, stream: LandingStream, error: HeadraceError, trace: str = "") -> None:
        """Set a stream's next retry and log the traceback. The table is unchanged."""
        stream.failure = next_failure(stream.failure, error, now=time.monotonic())
        self.log(stream.label, f"try {stream.failure.times} failed", trace or error)

    def fail_or_raise(self, stream: LandingStream, error: BaseException) -> None:
        """Fail a stream with an unexpected error; raise an error that concerns all streams."""
        if concerns_all(error):
            raise error
        self.fail(stream, as_landing_error(error, label=stream.label), "".join(traceback.format_exception(error)))

    def end(self, stream: LandingStream, *, is_behind: bool) -> None:
        """Clear the failure of a stream that has nothing to land in this run.

        A stream that `is_behind` fails again: the run began without knowing its end.
        """
        if is_behind and stream.failure:
            self.fail(stream, stream.failure.error)
        else:
            stream.failure = None

    def stop(self, stream: LandingStream, error: LandingError) -> None:
        """Stop a stream until the user decides. Each reason is logged once."""
        if stream.stopped is None or stream.stopped.what != error.what:
            self.log(stream.label, "stopped", error)
        stream.stopped = error

    def log(self, label: str, what: str, error: BaseException | str, *, level: int = logging.ERROR) -> None:
        """Log what happened to a stream, with the error's traceback or the given one."""
        fields = {"pipeline": self._pipeline, "stream": label.removeprefix(f"{self._pipeline}.")}
        log_failure(_LOG, self._settings, LANDING, f"{label}: {what}", error, level=level, **fields)
