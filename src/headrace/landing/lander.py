"""Land the streams of a pipeline: one batch is six numbered steps, and the table is the checkpoint.

1. Plan (here): the tables' ledgers and the topics' ends determine the next offsets.
2. Read, 3. Decode, 4. Write, 5. Log (in Spark tasks, `task.py`).
6. Commit (`stream_commits.py`): each table gets its files and its new ledger entry in one snapshot.
"""

from __future__ import annotations

import logging
import os
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from confluent_kafka.admin import AdminClient
from py4j.protocol import Py4JError
from pyiceberg.catalog import Catalog

from headrace.errors import HeadraceError, LandingError
from headrace.faults import fault_point
from headrace.iceberg.catalog.outages import translate_outages
from headrace.iceberg.catalog.tables import table_location
from headrace.iceberg.files.in_flight import check_in_time
from headrace.iceberg.files.storage import Storage
from headrace.iceberg.ledgers.landing import was_rolled_back
from headrace.iceberg.metadata.quarantine import QUARANTINE, read_refused_before
from headrace.kafka.topics import ensure_topics
from headrace.landing.apart import run_apart
from headrace.landing.batch import Range, StreamJob, StreamResult, TaskPlan, growth_of, refusals
from headrace.landing.failures import seconds_until_retry
from headrace.landing.growth import grow_table
from headrace.landing.landed import Batch, LandingStream
from headrace.landing.open_streams import open_streams
from headrace.landing.places import check_outputs
from headrace.landing.plan import Bounds, accept_gaps, end_at, limit_ranges, pack_ranges, ranges_to_land
from headrace.landing.replaced_topics import accept, adopt, check_topic, is_replaced
from headrace.landing.stream_commits import StreamCommits
from headrace.landing.stream_failures import StreamFailures
from headrace.landing.task import run_tasks
from headrace.landing.task_errors import explain_failure
from headrace.landing.topic_choice import ReplacedTopic
from headrace.landing.watched_topics import WatchedTopics
from headrace.settings import Settings
from headrace.spec.model.pipeline import Pipeline, configs_of
from headrace.spec.model.types import Column

if TYPE_CHECKING:
    from pyspark import SparkContext


class Lander:
    """Lands all streams of one pipeline in one Spark application.

    `find_registry` returns the current address of the schema registry, which a restart may change.
    """

    def __init__(
        self,
        settings: Settings,
        pipeline: Pipeline,
        *,
        catalog: Catalog,
        admin: AdminClient,
        consumer: Mapping[str, str],
        find_registry: Callable[[], str] = lambda: "",
    ) -> None:
        self._settings = settings
        self._catalog = catalog
        self._consumer = tuple(sorted(consumer.items()))
        self._storage = Storage.of(catalog.properties)
        self._find_registry = find_registry
        check_outputs(pipeline, settings)
        ensure_topics(
            admin, {stream.topic: stream.partitions for stream in pipeline.streams}, configs=configs_of(pipeline.streams)
        )
        self._failures = StreamFailures(settings, pipeline.name)
        self.streams, self._unopened = open_streams(settings, pipeline, catalog=catalog, failures=self._failures)
        self._commits = StreamCommits(settings, pipeline.name, self.streams, catalog=catalog, failures=self._failures)
        self._topics = WatchedTopics(admin, [stream.topic for stream in pipeline.streams])

    @property
    def rolled_back(self) -> tuple[str, ...]:
        """The streams whose tables were rolled back since they last landed. They continue from the table's current state."""
        return tuple(stream.label for stream in self.streams if was_rolled_back(stream.table))

    def accept_gaps(self) -> tuple[tuple[str, tuple[int, int, int]], ...]:
        """Skip offsets that Kafka has deleted, and return each gap (partition, first offset, offset after) by stream.

        A checkpoint without rows records the gaps in the ledger.
        """
        accepted: list[tuple[str, tuple[int, int, int]]] = []
        for stream, bounds in self._bounds():
            if is_replaced(stream.stream.topic, stream.ledger, self._topics.identity(stream.stream.topic), bounds):
                continue  # the new topic has other offsets, so they are no gap
            ledger = accept_gaps(stream.ledger, bounds)
            gaps = ledger.gaps[len(stream.ledger.gaps) :]
            if gaps:
                self._commits.append(stream, [], replace(ledger, quarantine_files=()))
            accepted += [(stream.label, gap) for gap in gaps]
        return tuple(accepted)

    def accept_replaced(self, choice: ReplacedTopic) -> tuple[str, ...]:
        """Apply the choice to each stream whose topic was replaced, and return their labels.

        A checkpoint without rows records it in the ledger.
        """
        accepted: list[str] = []
        for stream, bounds in self._bounds():
            identity = self._topics.identity(stream.stream.topic)
            if identity is not None and is_replaced(stream.stream.topic, stream.ledger, identity, bounds):
                self._commits.append(stream, [], accept(stream.ledger, identity, bounds, choice))
                accepted.append(stream.label)
        return tuple(accepted)

    def ends(self) -> Mapping[tuple[str, int], int]:
        """Return the end offset of each partition."""
        return {
            (stream.stream.topic, partition): bound.high
            for stream, bounds in self._bounds()
            for partition, bound in bounds.items()
        }

    def land_batch(self, spark: SparkContext, *, until: Mapping[tuple[str, int], int] | None = None) -> Batch | None:
        """Land new messages, up to the batch's limit; return None if there are none.

        With `until`, messages after those ends are left for later. Raises an UnavailableError if Kafka, the catalog or the
        object store is unavailable; the next call continues from the last commit.
        """
        with translate_outages():
            return self._land_batch(spark, until)

    def _land_batch(self, spark: SparkContext, until: Mapping[tuple[str, int], int] | None) -> Batch | None:
        started, began = time.monotonic(), time.time()
        self._commits.finish()
        ranges, behind = self._plan(until)
        if not ranges:
            return None
        fault_point("plan")
        topics = {part.topic for part in ranges}
        active = [stream for stream in self.streams if stream.stream.topic in topics]
        results = self._run_apart(spark, active, ranges)
        active = [stream for stream in active if stream.label in results]
        growth = {stream.stream.topic: growth_of(results[stream.label]) for stream in active}
        grown = [note for stream in active for note in self._grow(stream, growth[stream.stream.topic])]
        whole = [stream for stream in active if not growth[stream.stream.topic]]
        check_in_time(self._settings, began=began, where=", ".join(stream.label for stream in active))
        self._topics.check_unchanged(stream.stream.topic for stream in whole)
        landed = self._commits.commit(whole, ranges, results, started=started)
        fault_point("commit")
        behind += sum(part.size for part in ranges if growth.get(part.topic))
        return Batch(landed, time.monotonic() - started, behind, (*grown, *refusals(results)))

    @property
    def stopped(self) -> Mapping[str, HeadraceError]:
        """Why streams don't land, by their labels: some require a decision, others are retried."""
        return {**self._unopened, **{stream.label: stream.reason for stream in self.streams if stream.reason}}

    @property
    def retried(self) -> frozenset[str]:
        """The labels of the stopped streams that are retried without a decision."""
        return frozenset(stream.label for stream in self.streams if stream.failure and not stream.stopped)

    def seconds_to_retry(self, *, most: int) -> float | None:
        """Return the seconds until the next retry of a stream that failed at most `most` times; None if there is none."""
        failures = [stream.failure for stream in self.streams if stream.failure and not stream.stopped]
        return seconds_until_retry(failures, most=most, now=time.monotonic())

    def _plan(self, until: Mapping[tuple[str, int], int] | None) -> tuple[tuple[Range, ...], int]:
        """Step 1: return the ranges of the batch and the number of messages left. Streams that can't continue are stopped."""
        ranges: list[Range] = []
        for stream, bounds in self._bounds(waiting=False):
            try:
                check_topic(stream.stream.topic, stream.ledger, self._topics.identity(stream.stream.topic))
                parts = ranges_to_land(stream.stream.topic, stream.ledger, bounds)
                wanted = [part for part in end_at(parts, until) if part.size]
                ranges += wanted
                if stream.failure and not wanted:
                    self._failures.end(stream, is_behind=any(part.size for part in parts))
                stream.stopped = None
                # Empty partitions are in the ledger too, so that messages deleted before they land are a gap there as well.
                first = {partition: bound.low for partition, bound in bounds.items()}
                adopted = adopt(stream.ledger, self._topics.identity(stream.stream.topic))
                stream.ledger = replace(adopted, offsets=MappingProxyType({**first, **stream.ledger.offsets}))
            except LandingError as error:
                self._failures.stop(stream, error)
        taken = limit_ranges(ranges, most=self._settings.batch_max_records)
        return taken, sum(part.size for part in ranges) - sum(part.size for part in taken)

    def _bounds(self, *, waiting: bool = True) -> list[tuple[LandingStream, dict[int, Bounds]]]:
        """Return the bounds of the streams' topics; fail each stream whose topic can't be read.

        Streams that wait for their next retry are included only with `waiting`.
        """
        now = time.monotonic()
        due = [stream for stream in self.streams if waiting or not (stream.failure and stream.failure.retry_at > now)]
        bounds, errors = self._topics.bounds([stream.stream.topic for stream in due])
        for stream in due:
            if stream.stream.topic in errors:
                self._failures.fail(stream, errors[stream.stream.topic])
        return [(stream, bounds[stream.stream.topic]) for stream in due if stream.stream.topic in bounds]

    def _run_apart(
        self, spark: SparkContext, active: Sequence[LandingStream], ranges: Sequence[Range]
    ) -> Mapping[str, Sequence[StreamResult]]:
        """Return the results of the streams that can be committed. Each stream that fails waits for its retry."""
        results, errors = run_apart(active, ranges, lambda group, parts: self._run(spark, group, parts))
        for stream in active:
            if stream.label in errors:
                self._failures.fail(stream, *errors[stream.label])
            for trace in (trace for part in results.get(stream.label, ()) for trace in part.traces):
                self._failures.log(stream.label, "messages were quarantined", trace, level=logging.WARNING)
        return results

    def _run(
        self, spark: SparkContext, active: Sequence[LandingStream], ranges: Sequence[Range]
    ) -> dict[str, list[StreamResult]]:
        """Steps 2 to 5: run one task per core and return the results by label."""
        jobs = {stream.stream.topic: self._job(stream) for stream in active}
        batch = str(uuid.uuid4())
        plans = [
            TaskPlan(
                subtask=subtask,
                batch=batch,
                jobs=tuple(jobs[topic] for topic in dict.fromkeys(part.topic for part in task)),
                ranges=task,
                consumer=self._consumer,
                storage=self._storage,
                driver_pid=os.getpid(),
            )
            for subtask, task in enumerate(pack_ranges(ranges, cores=spark.defaultParallelism))
        ]
        results: dict[str, list[StreamResult]] = {stream.label: [] for stream in active}
        try:
            parts = spark.parallelize(plans, len(plans)).mapPartitions(run_tasks).collect()
        except Py4JError as error:
            raise explain_failure(error, logs=self._settings.logs) from error
        for part in parts:
            results[part.label].append(part)
        return results

    def _job(self, stream: LandingStream) -> StreamJob:
        return StreamJob(
            stream=stream.stream,
            label=stream.label,
            owner=str(stream.table.metadata.table_uuid),
            checkpoint_id=stream.ledger.checkpoint_id + 1,
            schema_json=stream.table.schema().model_dump_json(),
            spec_json=stream.table.spec().model_dump_json(),
            quarantine_schema_json=self._commits.quarantine.schema().model_dump_json(),
            output=stream.places.output,
            commit_log=stream.places.commit_log,
            quarantine_output=f"{table_location(self._settings, QUARANTINE)}/output",
            refused_before=read_refused_before(self._commits.quarantine, stream.label, stream.ledger),
            registry_url=self._find_registry() if stream.stream.may_need_registry else "",
        )

    def _grow(self, stream: LandingStream, growth: Sequence[tuple[Column, ...]]) -> tuple[str, ...]:
        """Add missing columns to the stream's table and return notes about them. Its messages land in the next batch."""
        if not growth:
            return ()
        try:
            stream.table, notes = grow_table(self._catalog, stream.table, growth)
        except Exception as error:
            self._failures.fail_or_raise(stream, error)
            return ()
        return notes
