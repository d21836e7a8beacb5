"""Publish the tables of a pipeline to Postgres, as a command does it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from pyiceberg.catalog import Catalog

from headrace.errors import HeadraceError, SpecError, UnavailableError
from headrace.iceberg.catalog.outages import translate_outages
from headrace.iceberg.catalog.tables import open_catalog
from headrace.servers.embedded import Report
from headrace.servers.postgres import find_postgres, postgres, start_postgres
from headrace.serving.publish.publish import Published, publish
from headrace.settings import Settings
from headrace.spec.model.pipeline import Pipeline, PostgresTable
from headrace.spec.problems import suggest


@dataclass(frozen=True)
class Publisher:
    """Brings a pipeline's tables in Postgres up to the lake; `published` is called for each one that changed."""

    settings: Settings
    pipeline: Pipeline
    catalog: Catalog
    report: Report
    published: Callable[[Published], None]

    def publish(self, *, full: bool = False) -> int:
        """Publish all tables; return how many changed. A table that fails does not stop the others: its error is raised last.

        An UnavailableError is raised at once: Postgres or the lake is away for all tables.
        """
        errors: list[HeadraceError] = []
        changed = 0
        for table in self.pipeline.serving.postgres:
            try:
                changed += self.publish_table(table, full=full)
            except UnavailableError:
                raise
            except HeadraceError as error:
                errors.append(error)
        for other in errors[1:]:
            self.report(str(other))
        if errors:
            raise errors[0]
        return changed

    def publish_table(self, table: PostgresTable, *, full: bool = False) -> bool:
        """Publish one table; say whether it changed. An embedded Postgres that died is started again."""
        dsn = find_postgres(self.settings)
        if dsn is None:
            dsn = start_postgres(self.settings, detached=False, report=self.report).dsn
        with translate_outages():
            done = publish(dsn, self.catalog, table, full=full, pipeline=self.pipeline.name)
        if done is None:
            return False
        self.published(done)
        return True


@contextmanager
def publishing(
    settings: Settings, pipeline: Pipeline, *, report: Report, published: Callable[[Published], None]
) -> Iterator[Publisher | None]:
    """Yield a publisher with a Postgres that answers, or None for a pipeline that publishes nothing."""
    if not pipeline.serving.postgres:
        yield None
        return
    with postgres(settings, report=report):
        yield Publisher(settings, pipeline, open_catalog(settings), report, published)


def choose_published(pipeline: Pipeline, name: str | None) -> Sequence[PostgresTable]:
    """Return the pipeline's published tables, or those that `name` means: a table in Postgres, or the one it is made from."""
    tables = pipeline.serving.postgres
    if name is None:
        return tables
    found = [table for table in tables if name in (table.name, str(table.source), table.source.name)]
    if not found:
        hint = suggest(name, [table.name for table in tables], plural="Published tables")
        raise SpecError(f'no published table "{name}"', where=f"pipeline {pipeline.name}", next_step=hint)
    return found
