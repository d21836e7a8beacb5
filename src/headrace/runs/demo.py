"""The first ten minutes: services, a generator, landing, what came of it, and then live."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Event, Thread

import pyarrow as pa

from headrace.landing.lander import Batch
from headrace.landing.verify import Verified
from headrace.runs.inspection import verify
from headrace.runs.landing import Session, land
from headrace.serving.query import run_query
from headrace.sources.generate import generate
from headrace.sources.generators import Rate
from headrace.spec.pipeline import Pipeline
from headrace.tables.catalog import open_catalog


@dataclass(frozen=True)
class Shown:
    """A query of the demo, and its answer."""

    about: str
    sql: str
    answer: pa.Table


def queries_of(pipeline: Pipeline) -> tuple[tuple[str, str], ...]:
    """Gives back what is worth asking of any freshly landed pipeline."""
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
    """Generates `count` events of the stream that sends most often, as many of the others as go with it, and lands them."""
    able = [stream for stream in session.pipeline.streams if stream.generator is not None]
    for stream in able:
        rate = Rate(per_second=None, count=count).in_proportion(stream, among=able)
        sent = generate(stream, rate, bootstrap_servers=session.bootstrap_servers, stop=Event())
        report(f"{sent:,} events are in topic {stream.topic}")
    land(session, once=True, stop=Event(), landed=landed, report=report)


def show_results(session: Session) -> tuple[tuple[Shown, ...], tuple[Verified, ...]]:
    """Gives back the answers to the demo's queries, and the lake held against the topic."""
    catalog = open_catalog(session.settings)
    shown = tuple(Shown(about, sql, run_query(catalog, sql)) for about, sql in queries_of(session.pipeline))
    return shown, verify(session.settings, session.pipeline, bootstrap_servers=session.bootstrap_servers)


@contextmanager
def generators(session: Session) -> Iterator[None]:
    """Keeps the pipeline's generators running, each at its own rate, while the block does."""
    stop = Event()
    threads = [
        Thread(
            target=generate,
            args=(stream, Rate()),
            kwargs={"bootstrap_servers": session.bootstrap_servers, "stop": stop},
            daemon=True,
        )
        for stream in session.pipeline.streams
        if stream.generator is not None
    ]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join(timeout=5)
