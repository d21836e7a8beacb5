"""Lands the streams of a pipeline: one batch is six numbered steps, and the table is the checkpoint.

1. Plan (here): the tables' ledgers and the topics' ends say which offsets come next.
2. Read, 3. Decode, 4. Write, 5. Log (in Spark tasks, `task.py`).
6. Commit (here): each table gets its files and its new ledger entry in one snapshot.
"""

from __future__ import annotations

import logging
import os
import time
import traceback
import uuid
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from confluent_kafka.admin import AdminClient
from py4j.protocol import Py4JError
from pyiceberg.catalog import Catalog
from pyiceberg.manifest import DataFile

from headrace.errors import HeadraceError, LandingError, RetryableError, SettingsError, SpecError, TakenOverError
from headrace.faults import fault_point
from headrace.iceberg.catalog.outages import translate_outages
from headrace.iceberg.catalog.tables import ensure_table, table_location
from headrace.iceberg.commits.append import append_checkpoint
from headrace.iceberg.files.in_flight import check_in_time
from headrace.iceberg.files.storage import Storage
from headrace.iceberg.ledgers.landing import Ledger, read_ledger, was_rolled_back
from headrace.iceberg.ledgers.replay import read_replay
from headrace.iceberg.metadata.quarantine import QUARANTINE, flush_quarantine, open_quarantine, paths_of, read_refused_before
from headrace.iceberg.metadata.quarantine_replay import flush_replayed
from headrace.kafka.topics import ensure_topics
from headrace.landing.apart import run_apart
from headrace.landing.batch import Range, StreamJob, StreamResult, TaskPlan, growth_of, refusals
from headrace.landing.commit_log import claim_log
from headrace.landing.failures import as_landing_error, concerns_all, next_failure, seconds_until_retry
from headrace.landing.growth import grow_table
from headrace.landing.landed import Batch, Landed, LandingStream
from headrace.landing.places import check_outputs, places_of
from headrace.landing.plan import Bounds, accept_gaps, end_at, limit_ranges, pack_ranges, ranges_to_land
from headrace.landing.replaced_topics import accept, adopt, check_topic, is_replaced
from headrace.landing.task import run_tasks
from headrace.landing.task_errors import explain_failure
from headrace.landing.topic_choice import ReplacedTopic
from headrace.landing.watched_topics import WatchedTopics
from headrace.logs import LANDING, log_failure, log_fields
from headrace.settings import Settings
from headrace.spec.model.columns import landed_columns
from headrace.spec.model.pipeline import Pipeline, Stream
from headrace.spec.model.types import Column

if TYPE_CHECKING:
    from pyspark import SparkContext

_LOG = logging.getLogger(__name__)
_COMMITS_AT_ONCE = 2  # a commit is mostly Python's own work: with more at once none ends sooner, and the first ends later


class Lander:
    """Lands all streams of one pipeline in one Spark application.

    `find_registry` gives the address of the schema registry as it is now: one that was started again may have another.
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
        self._pipeline = pipeline.name
        self._catalog = catalog
        self._consumer = tuple(sorted(consumer.items()))
        self._storage = Storage.of(catalog.properties)
        self._find_registry = find_registry
        check_outputs(pipeline, settings)
        ensure_topics(admin, {stream.topic: stream.partitions for stream in pipeline.streams})
        self._quarantine = open_quarantine(catalog, settings)
        self._unopened: dict[str, HeadraceError] = {}
        self.streams = self._open_all(pipeline)
        self._settle()
        for opened in self.streams:  # a replay that died may not have done it
            replayed = read_replay(opened.table)
            self._quarantine = flush_replayed(catalog, self._quarantine, opened.label, replayed)
        self._topics = WatchedTopics(admin, [stream.topic for stream in pipeline.streams])

    @property
    def rolled_back(self) -> tuple[str, ...]:
        """The streams whose tables were rolled back since they last landed: they go on from where the table is now."""
        return tuple(stream.label for stream in self.streams if was_rolled_back(stream.table))

    def accept_gaps(self) -> tuple[tuple[str, tuple[int, int, int]], ...]:
        """Move past what Kafka has deleted, and return each gap (partition, first offset, offset after) by stream.

        They are recorded in the ledger by a checkpoint of their own, which has no rows.
        """
        accepted: list[tuple[str, tuple[int, int, int]]] = []
        for stream, bounds in self._bounds():
            if is_replaced(stream.stream.topic, stream.ledger, self._topics.identity(stream.stream.topic), bounds):
                continue  # the offsets of another topic are no gap in this one
            ledger = accept_gaps(stream.ledger, bounds)
            gaps = ledger.gaps[len(stream.ledger.gaps) :]
            if gaps:
                self._append(stream, [], replace(ledger, quarantine_files=()))
            accepted += [(stream.label, gap) for gap in gaps]
        return tuple(accepted)

    def accept_replaced(self, choice: ReplacedTopic) -> tuple[str, ...]:
        """Apply the choice to each stream whose topic was replaced, and return their labels.

        It is recorded in the ledger by a checkpoint of its own, which has no rows.
        """
        accepted: list[str] = []
        for stream, bounds in self._bounds():
            identity = self._topics.identity(stream.stream.topic)
            if identity is not None and is_replaced(stream.stream.topic, stream.ledger, identity, bounds):
                self._append(stream, [], accept(stream.ledger, identity, bounds, choice))
                accepted.append(stream.label)
        return tuple(accepted)

    def ends(self) -> Mapping[tuple[str, int], int]:
        """Return how far each partition reaches now."""
        return {
            (stream.stream.topic, partition): there.high
            for stream, bounds in self._bounds()
            for partition, there in bounds.items()
        }

    def land_batch(self, spark: SparkContext, *, until: Mapping[tuple[str, int], int] | None = None) -> Batch | None:
        """Land what has arrived, up to the batch's limit, and return None if there is nothing to land.

        With `until`, what came after those ends is left for later. Where Kafka, the catalog or the object store is away it is
        an UnavailableError, and the next call goes on from what was committed.
        """
        with translate_outages():
            return self._land_batch(spark, until)

    def _land_batch(self, spark: SparkContext, until: Mapping[tuple[str, int], int] | None) -> Batch | None:
        started, began = time.monotonic(), time.time()
        self._finish_commits()
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
        landed = self._commit(whole, ranges, results, started=started)
        fault_point("commit")
        behind += sum(part.size for part in ranges if growth.get(part.topic))
        return Batch(landed, time.monotonic() - started, behind, (*grown, *refusals(results)))

    @property
    def stopped(self) -> Mapping[str, HeadraceError]:
        """Why streams don't land, by their labels: some need a decision, others are tried again."""
        return {**self._unopened, **{stream.label: stream.reason for stream in self.streams if stream.reason}}

    @property
    def retried(self) -> frozenset[str]:
        """Those of the stopped streams that are tried again without a decision."""
        return frozenset(stream.label for stream in self.streams if stream.failure and not stream.stopped)

    def seconds_to_retry(self, *, most: int) -> float | None:
        """Return how long to wait for the next stream that failed at most so many times; None if there is none."""
        failures = [stream.failure for stream in self.streams if stream.failure and not stream.stopped]
        return seconds_until_retry(failures, most=most, now=time.monotonic())

    def _fail(self, stream: LandingStream, error: HeadraceError, trace: str = "") -> None:
        """Leave a stream alone for a while; the log gets the traceback, and the table is not touched."""
        stream.failure = next_failure(stream.failure, error, now=time.monotonic())
        self._log_failure(stream.label, f"try {stream.failure.times} failed", trace or error)

    def _stop(self, stream: LandingStream, error: LandingError) -> None:
        """Stop a stream until a decision is made; the log gets each reason once."""
        if stream.stopped is None or stream.stopped.what != error.what:
            self._log_failure(stream.label, "stopped", error)
        stream.stopped = error

    def _log_failure(self, label: str, what: str, error: BaseException | str, *, level: int = logging.ERROR) -> None:
        fields = {"pipeline": self._pipeline, "stream": label.removeprefix(f"{self._pipeline}.")}
        log_failure(_LOG, self._settings, LANDING, f"{label}: {what}", error, level=level, **fields)

    def _end_failure(self, stream: LandingStream, *, is_behind: bool) -> None:
        """A stream that failed has nothing to land in this run: all is well, or the run began without knowing its end."""
        if is_behind and stream.failure:
            self._fail(stream, stream.failure.error)
        else:
            stream.failure = None

    def _fail_or_raise(self, stream: LandingStream, error: BaseException) -> None:
        """Leave a stream alone for a while after an unexpected error; raise one that is no matter of this stream."""
        if concerns_all(error):
            raise error
        self._fail(stream, as_landing_error(error, label=stream.label), "".join(traceback.format_exception(error)))

    def _open_all(self, pipeline: Pipeline) -> tuple[LandingStream, ...]:
        """Open the streams' tables; one that can't be opened as the pipeline or the settings say stops its stream alone.

        Raises the first error if no stream can be opened.
        """
        streams: list[LandingStream] = []
        for stream in pipeline.streams:
            try:
                streams.append(self._open(pipeline, stream))
            except (SpecError, SettingsError) as error:
                label = f"{pipeline.name}.{stream.name}"
                self._unopened[label] = error
                self._log_failure(label, "its table can't be opened", error)
        if not streams:
            raise next(iter(self._unopened.values()))
        return tuple(streams)

    def _open(self, pipeline: Pipeline, stream: Stream) -> LandingStream:
        places = places_of(stream, self._settings)
        table = ensure_table(
            self._catalog,
            stream.table,
            columns=landed_columns(stream),
            partition_by=stream.partition_by,
            location=places.table,
            properties={"write.data.path": places.output},
        )
        if stream.commit_log:  # one in the table's own folder is nobody else's
            claim_log(places.commit_log, table=str(stream.table), owner=str(table.metadata.table_uuid), storage=self._storage)
        return LandingStream(stream, f"{pipeline.name}.{stream.name}", table, places, read_ledger(table))

    def _plan(self, until: Mapping[tuple[str, int], int] | None) -> tuple[tuple[Range, ...], int]:
        """Step 1. A stream that can't go on is stopped, and the others go on without it."""
        ranges: list[Range] = []
        for stream, bounds in self._bounds(waiting=False):
            try:
                check_topic(stream.stream.topic, stream.ledger, self._topics.identity(stream.stream.topic))
                parts = ranges_to_land(stream.stream.topic, stream.ledger, bounds)
                wanted = [part for part in end_at(parts, until) if part.size]
                ranges += wanted
                if stream.failure and not wanted:
                    self._end_failure(stream, is_behind=any(part.size for part in parts))
                stream.stopped = None
                # An empty partition is in the ledger too: what Kafka deletes of it before it is landed is a gap like any other.
                first = {partition: there.low for partition, there in bounds.items()}
                known = adopt(stream.ledger, self._topics.identity(stream.stream.topic))
                stream.ledger = replace(known, offsets=MappingProxyType({**first, **stream.ledger.offsets}))
            except LandingError as error:
                self._stop(stream, error)
        taken = limit_ranges(ranges, most=self._settings.batch_max_records)
        return taken, sum(part.size for part in ranges) - sum(part.size for part in taken)

    def _bounds(self, *, waiting: bool = True) -> list[tuple[LandingStream, dict[int, Bounds]]]:
        """Return how far the topics reach, without those that fail here, and unless `waiting` without those of streams that
        failed and wait for their next try."""
        now = time.monotonic()
        asked = [each for each in self.streams if waiting or not (each.failure and each.failure.retry_at > now)]
        bounds, errors = self._topics.bounds([stream.stream.topic for stream in asked])
        for stream in asked:
            if stream.stream.topic in errors:
                self._fail(stream, errors[stream.stream.topic])
        return [(stream, bounds[stream.stream.topic]) for stream in asked if stream.stream.topic in bounds]

    def _run_apart(
        self, spark: SparkContext, active: Sequence[LandingStream], ranges: Sequence[Range]
    ) -> Mapping[str, Sequence[StreamResult]]:
        """Return the results of the streams that can be committed; each that fails is left alone for a while."""
        results, errors = run_apart(active, ranges, lambda group, parts: self._run(spark, group, parts))
        for stream in active:
            if stream.label in errors:
                self._fail(stream, *errors[stream.label])
            for trace in (trace for part in results.get(stream.label, ()) for trace in part.traces):
                self._log_failure(stream.label, "messages were quarantined", trace, level=logging.WARNING)
        return results

    def _run(
        self, spark: SparkContext, active: Sequence[LandingStream], ranges: Sequence[Range]
    ) -> dict[str, list[StreamResult]]:
        """Steps 2 to 5, in as many tasks as there are cores."""
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
            quarantine_schema_json=self._quarantine.schema().model_dump_json(),
            output=stream.places.output,
            commit_log=stream.places.commit_log,
            quarantine_output=f"{table_location(self._settings, QUARANTINE)}/output",
            refused_before=read_refused_before(self._quarantine, stream.label, stream.ledger),
            registry_url=self._find_registry() if stream.stream.may_need_registry else "",
        )

    def _grow(self, stream: LandingStream, growth: Sequence[tuple[Column, ...]]) -> tuple[str, ...]:
        """Return the stream's table the columns that it lacks, and back what came; its messages are left for the next batch."""
        if not growth:
            return ()
        try:
            stream.table, notes = grow_table(self._catalog, stream.table, growth)
        except Exception as error:
            self._fail_or_raise(stream, error)
            return ()
        return notes

    def _commit(
        self,
        active: Sequence[LandingStream],
        ranges: Sequence[Range],
        results: Mapping[str, Sequence[StreamResult]],
        *,
        started: float,
    ) -> tuple[Landed, ...]:
        """Step 6, tables side by side; then the refused rows of all of them."""
        with ThreadPoolExecutor(max_workers=_COMMITS_AT_ONCE) as pool:
            futures = [
                pool.submit(self._commit_stream, stream, ranges, results[stream.label], started=started) for stream in active
            ]
        errors = [(stream, error) for stream, future in zip(active, futures, strict=True) if (error := future.exception())]
        fault_point("committing")
        known = {file.file_path: file for parts in results.values() for part in parts for file in part.quarantine_files}
        self._settle(known)
        for _, error in errors:
            if concerns_all(error):
                raise error
        for stream, error in errors:
            self._fail_or_raise(stream, error)
        return tuple(future.result() for future in futures if not future.exception())

    def _commit_stream(
        self, stream: LandingStream, ranges: Sequence[Range], results: Sequence[StreamResult], *, started: float
    ) -> Landed:
        planned = stream.ledger
        ends = {part.partition: part.end for part in ranges if part.topic == stream.stream.topic}
        extras = Counter(planned.extras)
        for result in results:
            extras.update(result.extras)
        bad = sum(result.bad for result in results)
        new = replace(
            planned,
            offsets=MappingProxyType({**planned.offsets, **ends}),
            quarantined=planned.quarantined + bad,
            extras=MappingProxyType(dict(extras)),
            quarantine_files=tuple(path for result in results for path in paths_of(result.quarantine_files)),
            seconds=time.monotonic() - started,
        )
        files = [file for result in results for file in result.files]
        self._append(stream, files, new)
        landed = Landed(stream.label, stream.ledger.checkpoint_id, sum(result.rows for result in results), bad)
        fields = log_fields(
            pipeline=self._pipeline,
            stream=stream.stream.name,
            table=str(stream.stream.table),
            checkpoint=landed.checkpoint_id,
            rows_in=landed.rows + landed.bad,
            rows_bad=landed.bad,
            seconds=round(time.monotonic() - started, 3),
        )
        _LOG.info("landed a batch", extra=fields)
        return landed

    def _append(self, stream: LandingStream, files: Sequence[DataFile], new: Ledger) -> None:
        """Commit the next checkpoint of a stream."""
        entry = replace(new, checkpoint_id=new.checkpoint_id + 1, writer=str(uuid.uuid4()))
        try:
            stream.table = append_checkpoint(self._catalog, stream.table, files=files, planned=stream.ledger, new=entry)
        except TakenOverError as error:
            if not self._came_through(stream):
                raise
            raise RetryableError(
                "a commit whose answer never came has come through late",
                where=str(stream.stream.table),
                next_step="Nothing was written twice. It goes on from there by itself.",
            ) from error
        except Exception:
            stream.unsure += (entry.writer,)
            raise
        stream.ledger, stream.unsure, stream.failure = read_ledger(stream.table), (), None

    def _finish_commits(self) -> None:
        """Before a new batch: a commit whose answer never came may have come through, and refused rows may be unsettled."""
        for stream in self.streams:
            try:
                self._came_through(stream)
            except Exception as error:
                self._fail_or_raise(stream, error)
        self._settle()

    def _came_through(self, stream: LandingStream) -> bool:
        """Return whether the table has the checkpoint of a commit whose answer never came; then landing goes on from there."""
        if not stream.unsure:
            return False
        table = self._catalog.load_table(stream.table.name())
        if read_ledger(table).writer not in stream.unsure:
            return False
        stream.table, stream.ledger, stream.unsure = table, read_ledger(table), ()
        return True

    def _settle(self, known: Mapping[str, object] | None = None) -> None:
        ledgers = {stream.label: stream.ledger for stream in self.streams}
        self._quarantine = flush_quarantine(self._catalog, self._quarantine, ledgers, known=known)  # type: ignore[arg-type]
