"""Compare what a pipeline publishes with what Postgres has, row by row."""

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
    """Return how each published table compares with the lake.

    While an application runs the pipeline, a build that Postgres does not have yet is waited for, `seconds` at most.
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
            found = compare_published(dsn, find_catalog(settings), table, needs_current=waits)
        if not waits or found.is_current:
            return _describe(found, pipeline, table)
        time.sleep(_PAUSE_SECONDS)


def _describe(found: PublishedComparison, pipeline: Pipeline, table: PostgresTable) -> Compared:
    repair = f"Repair it: headrace publish {pipeline.name} --table {table.name} --full"
    return Compared(
        source=table.name,
        table=str(table.source),
        rows=found.rows,
        different=found.different,
        columns=found.columns,
        examples=found.examples,
        problems=found.problems,
        next_step=repair if found.different or found.problems else None,
    )
