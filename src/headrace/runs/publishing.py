"""Publishing as a command runs it: after every round of builds, whatever became of the last one."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from pyiceberg.catalog import Catalog

from headrace.errors import HeadraceError
from headrace.runs.patience import Patience
from headrace.services.embedded import Report
from headrace.services.postgres import find_postgres, postgres, start_postgres
from headrace.serving.publish import Published, publish
from headrace.settings import Settings
from headrace.spec.pipeline import Pipeline
from headrace.tables.away import away_if_broken
from headrace.tables.catalog import open_catalog


@dataclass
class Publisher:
    """Brings a pipeline's tables in Postgres up to the lake, and after a failure waits before it tries again."""

    settings: Settings
    pipeline: Pipeline
    catalog: Catalog
    report: Report
    published: Callable[[Published], None]
    _again_at: float = field(default=0.0, init=False)
    _patience: Patience = field(init=False)

    def __post_init__(self) -> None:
        self._patience = Patience("publishing", report=self.report)

    @property
    def is_behind(self) -> bool:
        """Says whether the last try failed."""
        return self._patience.is_waiting

    def publish(self) -> None:
        """Publishes all tables; the first failure is an error. A Postgres of ours that died is started again."""
        dsn = find_postgres(self.settings)
        if dsn is None:
            dsn = start_postgres(self.settings, detached=False, report=self.report).dsn
        for table in self.pipeline.serving.postgres:
            with away_if_broken():
                done = publish(dsn, self.catalog, table)
            if done is not None:
                self.published(done)

    def try_publish(self) -> None:
        """Publishes all tables, unless the last try failed a moment ago. The first failure is reported, and so is its end."""
        if time.monotonic() < self._again_at:
            return
        try:
            self.publish()
        except HeadraceError as error:
            self._again_at = time.monotonic() + self._patience.next_pause(error)
        else:
            self._patience.goes_on()


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
