"""Bring `metadata` up to the tables beside a live run's builds, not between them: at most once in a few seconds."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Lock, Thread

from headrace.app.waiting_requests import WaitingRequests
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
    """What the builds of one pipeline did since it was last mirrored.

    Results of builds that a killed application had not mirrored are lost, except those of each table's last build, which the
    table itself has.
    """

    def __init__(self, lake: Lake, *, report: Report) -> None:
        self._lake = lake
        self._report = report
        self._requests = WaitingRequests(lake, report)
        self._outcomes: list[Outcome] = []
        self._lock = Lock()
        self._changed, self._ending = Event(), Event()

    def add(self, outcome: Outcome) -> None:
        """Have the results of a build mirrored."""
        if outcome.built or outcome.error:
            with self._lock:
                self._outcomes.append(outcome)
            self._changed.set()

    def note_landed(self) -> None:
        """Have the requests to erase a person counted that may have landed."""
        people = self._lake.pipeline.people
        if people is not None and people.requests:
            self._changed.set()

    def work(self) -> None:
        """Mirror what was added until `end` is called, then once more."""
        while not self._ending.is_set():
            self._changed.wait()
            self._ending.wait(_EVERY_SECONDS)
            self._changed.clear()
            try:
                self._flush()
            except UnavailableError:  # the builds say so, and say when they go on
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
    """Yield a mirror that is worked off while the block runs; an unexpected error is given to `failed`."""
    found = Mirror(lake, report=report)

    def work() -> None:
        try:
            found.work()
        except BaseException as error:
            failed(error)

    thread = Thread(target=work, name=f"mirror {lake.pipeline.name}", daemon=True)
    thread.start()
    try:
        yield found
    finally:
        found.end()
        thread.join()
