"""Run landing: start its servers and Spark, and land batches until it is stopped."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Event
from typing import TYPE_CHECKING

from headrace.errors import LandingError, RetryableError
from headrace.iceberg.catalog.outages import translate_outages
from headrace.iceberg.catalog.tables import open_catalog
from headrace.kafka.client import KafkaServers
from headrace.kafka.topics import admin_client
from headrace.landing.landed import Batch
from headrace.landing.lander import Lander
from headrace.servers.embedded import Report
from headrace.servers.kafka import kafka
from headrace.servers.registry import ExpectedRegistry
from headrace.sessions.capturing import capturing
from headrace.sessions.lock import pipeline_lock
from headrace.sessions.own_topics import make_topics
from headrace.sessions.retry_policy import RetryPolicy, for_command
from headrace.sessions.shared_spark import spark_session
from headrace.settings import Settings
from headrace.spec.model.pipeline import Pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_IDLE_SECONDS = 0.05
_BUSY_SECONDS = 1.0
"""The minimum interval of batches while tables are being built. Each batch costs a job and a commit per stream, and its rows
wait for the running builds anyway."""
_POLL_SECONDS = 0.02
"""How often landing checks whether builds are still running."""
_RETRIES_ONCE = 2
"""How often `--once` retries a failed stream: after one second and after two."""


@dataclass(frozen=True)
class Session:
    """The resources of an application that lands a pipeline."""

    settings: Settings
    pipeline: Pipeline
    bootstrap_servers: KafkaServers
    lander: Lander
    spark: SparkSession


@contextmanager
def _kafka_with_topics(settings: Settings, pipeline: Pipeline, *, report: Report) -> Iterator[KafkaServers]:
    """Yield a Kafka with the pipeline's topics. Topics are created before anything slower starts."""
    with kafka(settings, report=report) as servers:
        retry_policy = for_command("landing", report=report)
        retry_policy.keep_trying(lambda: make_topics(settings, servers, pipeline.streams), stop=Event())
        yield servers


@contextmanager
def landing_session(settings: Settings, pipeline: Pipeline, *, report: Report, take_over: bool = False) -> Iterator[Session]:
    """Yield a session with all servers running, and stop the ones that it started at the end."""
    with (
        landing_services(settings, pipeline, report=report, take_over=take_over) as servers,
        spark_session(settings, report=report) as spark,
    ):
        yield open_session(settings, pipeline, servers, spark, report=report)


@contextmanager
def landing_services(settings: Settings, pipeline: Pipeline, *, report: Report, take_over: bool) -> Iterator[KafkaServers]:
    """Hold a pipeline's lock and run the servers of its landing, without Spark. Yield its Kafka."""
    with (
        pipeline_lock(settings, pipeline.name, take_over=take_over),
        _kafka_with_topics(settings, pipeline, report=report) as servers,
        capturing(settings, pipeline, report=report),
    ):
        yield servers


def open_session(
    settings: Settings, pipeline: Pipeline, servers: KafkaServers, spark: SparkSession, *, report: Report
) -> Session:
    """Return a session that lands a pipeline. The caller holds the pipeline's lock."""

    def open_lander() -> Lander:
        with translate_outages():
            return Lander(
                settings,
                pipeline,
                catalog=open_catalog(settings),
                admin=admin_client(servers),
                consumer=servers.task_config(),
                find_registry=ExpectedRegistry(settings).find,
            )

    lander = for_command("landing", report=report).keep_trying(open_lander, stop=Event())
    for label in lander.rolled_back:
        report(f"{label}: its table was rolled back; landing its lost rows again")
    return Session(settings, pipeline, servers, lander, spark)


def land(
    session: Session,
    *,
    once: bool,
    stop: Event,
    landed: Callable[[Batch], None],
    report: Report,
    idle: Callable[[], None] = lambda: None,
    nothing: Report = lambda sentence: None,
    is_busy: Callable[[], bool] = lambda: False,
) -> None:
    """Land batches until `stop` is set; with `once`, until all messages that existed at the start have landed.

    With `once`, call `nothing` with a sentence if there were no new messages. A stream that needs a decision stops alone; its
    error is raised after the others are done. A failing stream retries with backoff; with `once`, only a few times. Outages of
    Kafka, the catalog or the object store are reported and retried; with `once`, for five minutes. While `is_busy`, batches
    start at most once per second.
    """
    retry_policy = for_command("landing", report=report) if once else RetryPolicy("landing", report=report)
    until: Mapping[tuple[str, int], int] | None = None
    reported: set[str] = set()
    failing: dict[str, str] = {}
    has_landed = False
    while not stop.is_set():
        started = time.monotonic()
        try:
            if once and until is None:
                until = session.lander.ends()
            batch = session.lander.land_batch(session.spark.sparkContext, until=until)
        except RetryableError as error:
            stop.wait(retry_policy.next_pause(error))
            continue
        retry_policy.goes_on()
        failing = _report_changes(failing, session.lander, report)
        if batch is not None:
            for note in batch.notes:
                if note not in reported:
                    report(note)
                    reported.add(note)
            landed(batch)
            has_landed = True
        elif once:
            pause = session.lander.seconds_to_retry(most=_RETRIES_ONCE)
            if pause is None:
                break
            stop.wait(pause)
        else:
            idle()
        if batch is None or not batch.behind:
            pause = _IDLE_SECONDS if batch is None else 0.0
            stop.wait(max(pause, 0.0 if once else session.pipeline.trigger_seconds - (time.monotonic() - started)))
            while batch is not None and is_busy() and time.monotonic() - started < _BUSY_SECONDS:
                if stop.wait(_POLL_SECONDS):
                    break
    stopped = session.lander.stopped
    if len(stopped) > 1:
        raise LandingError(
            f"{len(stopped)} streams did not land: {'; '.join(error.what for error in stopped.values())}",
            where=", ".join(stopped),
            next_step="All other streams have landed. Read the tracebacks with: headrace logs landing",
        )
    for only in stopped.values():
        raise only
    if until is not None and not has_landed and not stop.is_set():
        nothing(_describe_nothing(until))


def _report_changes(before: Mapping[str, str], lander: Lander, report: Report) -> dict[str, str]:
    """Report streams that stopped, stopped for another reason, or resumed. Return the current reasons."""
    stopped = lander.stopped
    for label, error in stopped.items():
        if before.get(label) != error.what:
            report(f"{label} {'failed and will be retried' if label in lander.retried else 'is stopped'}. {error}")
    for label in before.keys() - stopped.keys():
        report(f"{label} is landing again")
    return {label: error.what for label, error in stopped.items()}


def _describe_nothing(ends: Mapping[tuple[str, int], int]) -> str:
    """Return why there was nothing to land, from the end offsets of the topics."""
    topics = ", ".join(sorted({topic for topic, _ in ends}))
    if any(ends.values()):
        return f"nothing to land: all messages of {topics} have landed"
    return f"nothing to land: {topics} {'has' if ',' not in topics else 'have'} no messages yet"


@contextmanager
def stop_on_signals() -> Iterator[Event]:
    """Yield an event that Ctrl-C or SIGTERM sets, so that the batch can finish. A second Ctrl-C interrupts at once."""
    stop = Event()

    def handle(number: int, frame: object) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
