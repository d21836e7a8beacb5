"""Publish the tables of a pipeline to Postgres."""

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
    """Publish a pipeline's tables to Postgres. `published` is called for each table that changed."""

    settings: Settings
    pipeline: Pipeline
    catalog: Catalog
    report: Report
    published: Callable[[Published], None]

    def publish(self, *, full: bool = False) -> int:
        """Publish all tables, and return how many changed. The first table's error is raised after all tables were tried.

        An UnavailableError is raised at once, because Postgres or the lake is unavailable for all tables.
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
        """Publish one table. Return whether it changed. Restarts an embedded Postgres that stopped."""
        dsn = find_postgres(self.settings)
        if dsn is None:
            dsn = start_postgres(self.settings, detached=False, report=self.report).dsn
        with translate_outages():
            published_table = publish(dsn, self.catalog, table, full=full, pipeline=self.pipeline.name)
        if published_table is None:
            return False
        self.published(published_table)
        return True


@contextmanager
def publishing(
    settings: Settings, pipeline: Pipeline, *, report: Report, published: Callable[[Published], None]
) -> Iterator[Publisher | None]:
    """Yield a publisher with a running Postgres, or None for a pipeline that publishes nothing."""
    if not pipeline.serving.postgres:
        yield None
        return
    with postgres(settings, report=report):
        yield Publisher(settings, pipeline, open_catalog(settings), report, published)


def choose_published(pipeline: Pipeline, name: str | None) -> Sequence[PostgresTable]:
    """Return the pipeline's published tables, or the ones that match `name`: in Postgres, or their source in the lake."""
    tables = pipeline.serving.postgres
    if name is None:
        return tables
    matches = [table for table in tables if name in (table.name, str(table.source), table.source.name)]
    if not matches:
        hint = suggest(name, [table.name for table in tables], plural="Published tables")
        raise SpecError(f'not found: published table "{name}"', where=f"pipeline {pipeline.name}", next_step=hint)
    return matches
