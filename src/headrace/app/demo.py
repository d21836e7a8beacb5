"""The steps of `headrace demo`: generate events, land them, build the tables and query the results."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Event, Thread

import pyarrow as pa

from headrace.app.generating import routes
from headrace.errors import BuildError
from headrace.iceberg.catalog.tables import open_catalog
from headrace.landing.landed import Batch
from headrace.operations.quality import ExpectationReport, report_quality
from headrace.operations.verify.inspection import verify
from headrace.operations.verify.verify import Verified
from headrace.plurals import count_of, count_that_are
from headrace.serving.sql.query import run_query
from headrace.sessions.building import Outcome, build, open_lake
from headrace.sessions.landing import Session, land
from headrace.sessions.lock import build_lock
from headrace.sessions.retry_policy import for_command
from headrace.sources.generate import generate
from headrace.sources.generators import Rate
from headrace.spec.model.pipeline import Pipeline


@dataclass(frozen=True)
class AnsweredQuery:
    """A query of the demo and its answer."""

    about: str
    sql: str
    answer: pa.Table


@dataclass(frozen=True)
class DemoResults:
    """The results of a demo: answers, the comparison of the lake with its topics, and the expectations."""

    shown: tuple[AnsweredQuery, ...]
    verified: tuple[Verified, ...]
    quality: tuple[ExpectationReport, ...]


def list_queries(pipeline: Pipeline) -> tuple[tuple[str, str], ...]:
    """Return the pipeline's own queries, or else generic ones about its raw tables."""
    if pipeline.queries:
        return tuple((query.about, query.sql) for query in pipeline.queries)
    queries: list[tuple[str, str]] = []
    for stream in pipeline.streams:
        table = stream.table
        queries.append(
            (
                f"Rows, partitions and offsets in {table}",
                f"SELECT count(*) AS events, count(DISTINCT kafka_partition) AS partitions, max(kafka_offset) AS last_offset, "
                f"max(checkpoint_id) AS checkpoint FROM {table}",
            )
        )
        names = ", ".join(column.name for column in stream.columns[:2])
        queries.append(
            (
                f"The newest events of {table}",
                f"SELECT {names}, kafka_partition, kafka_offset, checkpoint_id FROM {table} "
                "ORDER BY kafka_timestamp DESC LIMIT 5",
            )
        )
    return tuple(queries)


def land_events(session: Session, *, count: int, landed: Callable[[Batch], None], report: Callable[[str], None]) -> None:
    """Generate `count` events of the busiest stream and proportionally many of the others, and land them."""
    able = [stream for stream in session.pipeline.streams if stream.generator is not None]
    with routes(session.settings, session.pipeline, able, report=lambda sentence: None) as way:
        for stream in able:
            rate = Rate(per_second=None, count=count).in_proportion(stream, among=able)
            servers = session.bootstrap_servers
            sent = generate(stream, rate, bootstrap_servers=servers, stop=Event(), route=way.get(stream.name))
            place = f"answered by {stream.through}" if stream.through else f"in topic {stream.topic}"
            report(f"{count_that_are(sent, 'request' if stream.through else 'event')} {place}")
    land(session, once=True, stop=Event(), landed=landed, report=report)


def build_tables(session: Session, *, built: Callable[[Outcome], None], report: Callable[[str], None]) -> None:
    """Build the pipeline's layer tables. Raises a BuildError from the first table that fails."""
    pipeline = session.pipeline
    if not pipeline.tables:
        return
    started = time.monotonic()
    count = len(pipeline.tables)
    report(f"Building {count_of(count, 'table')}. The first build is the slowest, because Spark compiles a plan per table")
    with build_lock(session.settings, pipeline.name):
        retry_policy = for_command("builds", report=report)
        outcomes = build(open_lake(session.settings, pipeline, session.spark), done=built, retry_policy=retry_policy)
    for outcome in outcomes:
        if outcome.error:
            raise BuildError("a table could not be built", where=pipeline.name, next_step="See above.") from outcome.error
    report(f"{count_that_are(count, 'table')} built ({time.monotonic() - started:.1f} s)")


def read_results(session: Session) -> DemoResults:
    """Return the answers to the demo's queries, the comparison with the topics, and the expectations."""
    catalog = open_catalog(session.settings)
    return DemoResults(
        shown=tuple(AnsweredQuery(about, sql, run_query(catalog, sql)) for about, sql in list_queries(session.pipeline)),
        verified=verify(session.settings, session.pipeline, bootstrap_servers=session.bootstrap_servers),
        quality=report_quality(session.settings, session.pipeline),
    )


@contextmanager
def generators(session: Session) -> Iterator[None]:
    """Run the pipeline's generators, each at its own rate, for the duration of the block."""
    stop = Event()
    able = [stream for stream in session.pipeline.streams if stream.generator is not None]
    with routes(session.settings, session.pipeline, able, report=lambda sentence: None) as way:
        threads = [
            Thread(
                target=generate,
                args=(stream, Rate()),
                kwargs={"bootstrap_servers": session.bootstrap_servers, "stop": stop, "route": way.get(stream.name)},
                daemon=True,
            )
            for stream in able
        ]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            stop.set()
            for thread in threads:
                thread.join(timeout=5)
