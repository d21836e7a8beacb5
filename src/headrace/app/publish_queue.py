"""Publish each table once it is built, in a thread of its own, so that a slow Postgres does not delay builds."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Condition
from typing import TYPE_CHECKING

from headrace.background import in_background
from headrace.errors import HeadraceError, UnavailableError
from headrace.logs import PUBLISHING, log_failure
from headrace.servers.embedded import Report
from headrace.sessions.publishing import Publisher
from headrace.sessions.retry_policy import RetryPolicy
from headrace.spec.model.pipeline import PostgresTable, TableName

if TYPE_CHECKING:
    from headrace.sessions.building import Outcome

_LOG = logging.getLogger(__name__)


class PublishQueue:
    """The tables that are due to be published.

    A failed table is retried with backoff while the others continue. During an outage of Postgres or the lake, all tables wait.
    A table is in the queue at most once, so the queue never has more entries than the pipeline has tables.
    """

    def __init__(self, publisher: Publisher | None, *, report: Report) -> None:
        self._publisher = publisher
        self._report = report
        self._tables = publisher.pipeline.serving.postgres if publisher else ()
        self._due: dict[PostgresTable, float] = {}
        self._outage_until = 0.0
        self._outage = RetryPolicy("publishing", report=report)
        self._failing: dict[PostgresTable, RetryPolicy] = {}
        self._changed = Condition()
        self._is_ending = False

    def add(self, source: TableName | None = None) -> None:
        """Queue the tables that are published from `source`, or all of them."""
        with self._changed:
            for table in self._tables:
                if source is None or table.source == source:
                    self._due.setdefault(table, 0.0)
            self._changed.notify()

    def after(self, built: Callable[[Outcome], None]) -> Callable[[Outcome], None]:
        """Return a function that passes outcomes on to `built` and queues what was built."""

        def finished(outcome: Outcome) -> None:
            built(outcome)
            if outcome.built:
                self.add(outcome.table.table)

        return finished

    def work(self) -> None:
        """Publish due tables until `end` is called and no table is due."""
        assert self._publisher is not None
        while (table := self._next()) is not None:
            try:
                self._publisher.publish_table(table)
            except HeadraceError as error:
                if not isinstance(error, UnavailableError):
                    self._log_failure(self._publisher, table, error)
                self._retry_later(table, error)
            else:
                self._outage.goes_on()
                self._failing.pop(table, self._outage).goes_on()

    def _log_failure(self, publisher: Publisher, table: PostgresTable, error: HeadraceError) -> None:
        what, pipeline = f"publishing {table.name} failed", publisher.pipeline.name
        log_failure(_LOG, publisher.settings, PUBLISHING, what, error, pipeline=pipeline, table=table.name)

    def end(self) -> None:
        """Make `work` return after one attempt at every table that is due now."""
        with self._changed:
            self._is_ending = True
            self._changed.notify()

    def _next(self) -> PostgresTable | None:
        """Wait for the next due table and remove it from the queue; return None when the work has ended."""
        with self._changed:
            while True:
                now = time.monotonic()
                times = {table: max(due, self._outage_until) for table, due in self._due.items()}
                ready = [table for table, due in times.items() if due <= now]
                if ready:
                    del self._due[ready[0]]
                    return ready[0]
                if self._is_ending:
                    return None
                self._changed.wait(min(times.values()) - now if times else None)

    def _retry_later(self, table: PostgresTable, error: HeadraceError) -> None:
        with self._changed:
            if isinstance(error, UnavailableError):
                self._outage_until = time.monotonic() + self._outage.next_pause(error)
                self._due.setdefault(table, 0.0)
                return
            retry_policy = self._failing.setdefault(table, RetryPolicy(f"publishing {table.name}", report=self._report))
            self._due[table] = time.monotonic() + retry_policy.next_pause(error)


@contextmanager
def publish_queue(
    publisher: Publisher | None, *, report: Report = lambda sentence: None, failed: Callable[[], None] = lambda: None
) -> Iterator[PublishQueue]:
    """Yield a queue that publishes in a thread while the block runs; without a publisher it stays empty.

    At the end, makes one more attempt at every due table. An unexpected error calls `failed` and is raised after the block.
    """
    queue = PublishQueue(publisher, report=report)
    if publisher is None:
        yield queue
        return
    errors: list[BaseException] = []

    def work() -> None:
        try:
            queue.work()
        except BaseException as error:
            errors.append(error)
            failed()
            log_failure(_LOG, publisher.settings, PUBLISHING, "publishing has ended", error, pipeline=publisher.pipeline.name)

    with in_background(work, name="publishing", end=queue.end):
        yield queue
    if errors:
        raise errors[0]
