"""The first ten minutes: services, generators, landing, building, what came of it, and then live."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Event, Thread

import pyarrow as pa

from headrace.app.generating import ways
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
class Shown:
    """A query of the demo, and its answer."""

    about: str
    sql: str
    answer: pa.Table


@dataclass(frozen=True)
class Results:
    """What a demo has to show: answers, the lake held against the topics, and what the expectations found."""

    shown: tuple[Shown, ...]
    verified: tuple[Verified, ...]
    quality: tuple[ExpectationReport, ...]


def queries_of(pipeline: Pipeline) -> tuple[tuple[str, str], ...]:
    """Return what the pipeline itself says is worth asking, or what is of any that has just landed."""
    if pipeline.queries:
        return tuple((query.about, query.sql) for query in pipeline.queries)
    asked: list[tuple[str, str]] = []
    for stream in pipeline.streams:
        table = stream.table
        asked.append(
            (
                f"Rows, partitions and offsets in {table}",
                f"SELECT count(*) AS events, count(DISTINCT kafka_partition) AS partitions, max(kafka_offset) AS last_offset, "
                f"max(checkpoint_id) AS checkpoint FROM {table}",
            )
        )
        names = ", ".join(column.name for column in stream.columns[:2])
        asked.append(
            (
                f"The newest events of {table}",
                f"SELECT {names}, kafka_partition, kafka_offset, checkpoint_id FROM {table} "
                "ORDER BY kafka_timestamp DESC LIMIT 5",
            )
        )
    return tuple(asked)


def land_events(session: Session, *, count: int, landed: Callable[[Batch], None], report: Callable[[str], None]) -> None:
    """Generate `count` events of the stream that sends most often, as many of the others as go with it, and land them."""
    able = [stream for stream in session.pipeline.streams if stream.generator is not None]
    with ways(session.settings, session.pipeline, able, report=lambda sentence: None) as way:
        for stream in able:
            rate = Rate(per_second=None, count=count).in_proportion(stream, among=able)
            servers = session.bootstrap_servers
            sent = generate(stream, rate, bootstrap_servers=servers, stop=Event(), route=way.get(stream.name))
            is_there = f"answered by {stream.through}" if stream.through else f"in topic {stream.topic}"
            report(f"{count_that_are(sent, 'request' if stream.through else 'event')} {is_there}")
    land(session, once=True, stop=Event(), landed=landed, report=report)


def build_tables(session: Session, *, built: Callable[[Outcome], None], report: Callable[[str], None]) -> None:
    """Build the pipeline's layer tables from what has landed; the first that fails is an error."""
    pipeline = session.pipeline
    if not pipeline.tables:
        return
    started = time.monotonic()
    count = len(pipeline.tables)
    report(f"Building {count_of(count, 'table')}. The first build is the slowest: Spark compiles a plan for each of them")
    with build_lock(session.settings, pipeline.name):
        retry_policy = for_command("builds", report=report)
        outcomes = build(open_lake(session.settings, pipeline, session.spark), done=built, retry_policy=retry_policy)
    for outcome in outcomes:
        if outcome.error:
            raise BuildError("a table could not be built", where=pipeline.name, next_step="See above.") from outcome.error
    report(f"{count_that_are(count, 'table')} built ({time.monotonic() - started:.1f} s)")


def read_results(session: Session) -> Results:
    """Return the answers to the demo's queries, the lake held against the topics, and the expectations."""
    catalog = open_catalog(session.settings)
    return Results(
        shown=tuple(Shown(about, sql, run_query(catalog, sql)) for about, sql in queries_of(session.pipeline)),
        verified=verify(session.settings, session.pipeline, bootstrap_servers=session.bootstrap_servers),
        quality=report_quality(session.settings, session.pipeline),
    )


@contextmanager
def generators(session: Session) -> Iterator[None]:
    """Keep the pipeline's generators running, each at its own rate, while the block does."""
    stop = Event()
    able = [stream for stream in session.pipeline.streams if stream.generator is not None]
    with ways(session.settings, session.pipeline, able, report=lambda sentence: None) as way:
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
