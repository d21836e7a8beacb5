"""Mirror the results of a live run's builds to `metadata`, in a thread of its own and at most every few seconds."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Lock

from headrace.app.waiting_requests import WaitingRequests
from headrace.background import in_background
from headrace.build.lake import Lake
from headrace.errors import HeadraceError, UnavailableError
from headrace.iceberg.catalog.outages import translate_outages
from headrace.logs import BUILD, log_failure
from headrace.servers.embedded import Report
from headrace.sessions.building import Outcome, mirror

_LOG = logging.getLogger(__name__)
_EVERY_SECONDS = 5.0
"""How long outcomes are collected. People and dashboards read these tables; a build's own progress is in its own table."""


class Mirror:
    """The outcomes of one pipeline's builds that are not in `metadata` yet.

    If the application is killed, outcomes that were not mirrored are lost, except each table's last build, which is stored in
    the table.
    """

    def __init__(self, lake: Lake, *, report: Report) -> None:
        self._lake = lake
        self._report = report
        self._requests = WaitingRequests(lake, report)
        self._outcomes: list[Outcome] = []
        self._lock = Lock()
        self._changed, self._ending = Event(), Event()

    def add(self, outcome: Outcome) -> None:
        """Queue the results of a build."""
        if outcome.built or outcome.error:
            with self._lock:
                self._outcomes.append(outcome)
            self._changed.set()

    def note_landed(self) -> None:
        """Queue a count of the erasure requests that may have landed."""
        people = self._lake.pipeline.people
        if people is not None and people.requests:
            self._changed.set()

    def work(self) -> None:
        """Mirror queued outcomes until `end` is called, then once more."""
        while not self._ending.is_set():
            self._changed.wait()
            self._ending.wait(_EVERY_SECONDS)
            self._changed.clear()
            try:
                self._flush()
            except UnavailableError:  # the builds report the outage and its end
                self._changed.set()
            except HeadraceError as error:
                name = self._lake.pipeline.name
                log_failure(_LOG, self._lake.settings, BUILD, "metadata could not be written", error, pipeline=name)
                self._report(f"metadata of {name} could not be written: {error}")

    def end(self) -> None:
        self._ending.set()
        self._changed.set()

    def _flush(self) -> None:
        with self._lock:
            outcomes = tuple(self._outcomes)
        with translate_outages():
            if outcomes:
                mirror(self._lake, outcomes)
                with self._lock:
                    del self._outcomes[: len(outcomes)]
            self._requests.look()


@contextmanager
def mirroring(lake: Lake, *, report: Report, failed: Callable[[BaseException], None]) -> Iterator[Mirror]:
    """Yield a mirror that works in a thread while the block runs; pass an unexpected error to `failed`."""
    worker = Mirror(lake, report=report)

    def work() -> None:
        try:
            worker.work()
        except BaseException as error:
            failed(error)

    with in_background(work, name=f"mirror {lake.pipeline.name}", end=worker.end):
        yield worker
