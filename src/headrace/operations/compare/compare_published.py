"""Compare a pipeline's published tables with Postgres, row by row."""

from __future__ import annotations

import time

from headrace.iceberg.catalog.outages import translate_outages
from headrace.iceberg.catalog.tables import find_catalog
from headrace.operations.compare.compare_with_source import WAIT_SECONDS, Compared
from headrace.operations.compare.published_rows import PublishedComparison, compare_published
from headrace.servers.embedded import Report
from headrace.servers.postgres import postgres
from headrace.sessions.lock import is_running
from headrace.settings import Settings
from headrace.spec.model.pipeline import Pipeline, PostgresTable

_PAUSE_SECONDS = 0.5


def compare_all_published(
    settings: Settings, pipeline: Pipeline, *, report: Report, seconds: float = WAIT_SECONDS
) -> tuple[Compared, ...]:
    """Return the comparison of each published table with the lake.

    While an application runs the pipeline, wait up to `seconds` until Postgres has the newest build.
    """
    if not pipeline.serving.postgres:
        return ()
    deadline = time.monotonic() + seconds
    with postgres(settings, report=report) as dsn:
        return tuple(_compare(settings, pipeline, table, dsn=dsn, deadline=deadline) for table in pipeline.serving.postgres)


def _compare(settings: Settings, pipeline: Pipeline, table: PostgresTable, *, dsn: str, deadline: float) -> Compared:
    while True:
        waits = is_running(settings, pipeline.name) and time.monotonic() < deadline
        with translate_outages():
            comparison = compare_published(dsn, find_catalog(settings), table, needs_current=waits)
        if not waits or comparison.is_current:
            return _describe(comparison, pipeline, table)
        time.sleep(_PAUSE_SECONDS)


def _describe(comparison: PublishedComparison, pipeline: Pipeline, table: PostgresTable) -> Compared:
    repair = f"Publish it again: headrace publish {pipeline.name} --table {table.name} --full"
    return Compared(
        source=table.name,
        table=str(table.source),
        rows=comparison.rows,
        different=comparison.different,
        columns=comparison.columns,
        examples=comparison.examples,
        problems=comparison.problems,
        next_step=repair if comparison.different or comparison.problems else None,
    )
