"""Build or publish a pipeline's tables once."""

from __future__ import annotations

from dataclasses import replace

from headrace.app.board import Board
from headrace.app.publish_queue import publish_queue
from headrace.sessions.building import Outcome, building_session, choose_tables
from headrace.sessions.building import build as build_tables
from headrace.sessions.one_table import TableReport, build_alone, describe_quality, publishing_only, report_on
from headrace.sessions.publishing import choose_published, publishing
from headrace.sessions.retry_policy import for_command
from headrace.settings import Settings
from headrace.spec.model.pipeline import Pipeline


def build_pipeline(
    settings: Settings, pipeline: Pipeline, *, table: str | None = None, full_refresh: bool = False, board: Board
) -> tuple[Outcome, ...]:
    """Build all tables, or one and its upstream tables, publish what was built, and return the outcome of each.

    Raises a SpecError for an unknown table before anything is started. A table's error is in its outcome.
    """
    choose_tables(pipeline, table)
    if not pipeline.tables:
        return ()
    with publishing(settings, pipeline, report=board.report, published=board.published) as publisher:
        with building_session(settings, pipeline, report=board.report) as lake, publish_queue(publisher) as queue:
            retry_policy, done = for_command("build", report=board.report), queue.after(board.built)
            outcomes = build_tables(lake, table=table, full_refresh=full_refresh, done=done, retry_policy=retry_policy)
        if publisher is not None:
            publisher.publish()
    return outcomes


def build_without_upstream(
    settings: Settings, pipeline: Pipeline, *, table: str, full_refresh: bool, board: Board
) -> TableReport:
    """Build one table from its current inputs, publish it, report its expectations, and return its report."""
    chosen = choose_tables(pipeline, table)
    with publishing(
        settings, publishing_only(pipeline, chosen[-1]), report=board.report, published=board.published
    ) as publisher:
        with building_session(settings, pipeline, report=board.report, tables=chosen) as lake:
            retry_policy = for_command("build", report=board.report)
            outcome = build_alone(lake, chosen[-1], full_refresh=full_refresh, done=board.built, retry_policy=retry_policy)
        if not outcome.built and not outcome.error:
            board.report("nothing has changed since the last build")
        for sentence in describe_quality(outcome):
            board.report(sentence)
        if publisher is not None and not outcome.error:
            publisher.publish()
    return report_on(lake, outcome)


def publish_tables(
    settings: Settings, pipeline: Pipeline, *, table: str | None = None, full: bool = False, board: Board
) -> int:
    """Publish all tables, or one, to Postgres, and return how many changed."""
    tables = tuple(choose_published(pipeline, table))
    chosen = replace(pipeline, serving=replace(pipeline.serving, postgres=tables))
    with publishing(settings, chosen, report=board.report, published=board.published) as publisher:
        return publisher.publish(full=full) if publisher is not None else 0
