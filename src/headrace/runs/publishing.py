"""Publishing as a command runs it: after every round of builds, whatever became of the last one."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from pyiceberg.catalog import Catalog

from headrace.errors import HeadraceError, RetryableError
from headrace.services.embedded import Report
from headrace.services.postgres import find_postgres, postgres, start_postgres
from headrace.serving.publish import Published, publish
from headrace.settings import Settings
from headrace.spec.pipeline import Pipeline
from headrace.tables.catalog import open_catalog

_FIRST_WAIT_SECONDS = 0.5
_LONGEST_WAIT_SECONDS = 30.0


@dataclass
class Publisher:
    """Brings a pipeline's tables in Postgres up to the lake, and after a failure waits before it tries again."""

    settings: Settings
    pipeline: Pipeline
    catalog: Catalog
    report: Report
    published: Callable[[Published], None]
    _wait: float = 0.0
    _again_at: float = field(default=0.0)

    @property
    def is_behind(self) -> bool:
        """Says whether the last try failed."""
        return self._wait > 0

    def publish(self) -> None:
        """Publishes all tables; the first failure is an error. A Postgres of ours that died is started again."""
        dsn = find_postgres(self.settings)
        if dsn is None:
            dsn = start_postgres(self.settings, detached=False, report=self.report).dsn
        for table in self.pipeline.serving.postgres:
            done = publish(dsn, self.catalog, table)
            if done is not None:
                self.published(done)

    def try_publish(self) -> None:
        """Publishes all tables, unless the last try failed a moment ago; a failure is reported, and waits longer each time."""
        if time.monotonic() < self._again_at:
            return
        try:
            self.publish()
        except HeadraceError as error:
            self._wait = min(_LONGEST_WAIT_SECONDS, max(_FIRST_WAIT_SECONDS, self._wait * 2))
            self._again_at = time.monotonic() + self._wait
            what = error.what if isinstance(error, RetryableError) else str(error)
            self.report(f"{what}; trying again in {self._wait:.1f} s")
        else:
            self._wait = 0.0


@contextmanager
def publishing(
    settings: Settings, pipeline: Pipeline, *, report: Report, published: Callable[[Published], None]
) -> Iterator[Publisher | None]:
    """Gives a publisher with a Postgres that answers, or None for a pipeline that publishes nothing."""
    if not pipeline.serving.postgres:
        yield None
        return
    with postgres(settings, report=report):
        yield Publisher(settings, pipeline, open_catalog(settings), report, published)
