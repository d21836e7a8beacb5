"""Steps 2 to 5 of a batch in one Spark task: read, decode, write, log."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timezone
from functools import cache, lru_cache

import pyarrow as pa
from polars.exceptions import PanicException
from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyspark import TaskContext

from headrace.faults import InjectedError, fault_point, reach_topic
from headrace.garbage import freeze_loaded
from headrace.iceberg.catalog.outages import translate_outages
from headrace.iceberg.files.storage import Storage
from headrace.iceberg.files.write import TableFiles, TableFormat
from headrace.kafka.records import Messages, Records, split_messages
from headrace.landing.batch import StreamJob, StreamResult, TaskPlan
from headrace.landing.commit_log import log_files
from headrace.landing.decode import CHUNK_ROWS, Decoded, Decoder, GrowthError, decoder_of
from headrace.landing.isolation import may_be_data, split_isolated
from headrace.landing.read import RangeReader, reader_of_this_worker
from headrace.landing.rows import quarantine_rows, rows_of_block, split_bad_rows
from headrace.landing.task_errors import describe_failure
from headrace.spec.model.pipeline import Stream
from headrace.spec.model.types import Column

_MOST_TRACES = 3  # of one stream in one task, for the log
_NO_PARTITIONS = PartitionSpec().model_dump_json()


def run_tasks(plans: Iterable[TaskPlan]) -> Iterator[StreamResult]:
    """Run plans in a Spark task. Yield the result of each stream of each plan."""
    for plan in plans:
        with _without_gc(), translate_outages():
            results = _run_task(plan)
        _freeze_once()
        yield from results


def _run_task(plan: TaskPlan) -> list[StreamResult]:
    """Land each stream of the plan. A failing stream has a failure as its result and does not affect the others."""
    context = TaskContext.get()
    attempt = context.attemptNumber() if context else 0
    tasks = {job.stream.topic: _StreamTask(job, plan, attempt=attempt) for job in plan.jobs}
    reader = reader_of_this_worker(plan.consumer)
    try:
        for records in reader.read(plan.ranges, failed=lambda topic, error: tasks[topic].fail(error)):
            fault_point("read", driver_pid=plan.driver_pid, attempt=attempt)
            tasks[records.topic].take(records)
        results = [task.finish(reader) for task in tasks.values()]
    except BaseException:
        for task in tasks.values():
            task.abort()
        raise
    fault_point("write", driver_pid=plan.driver_pid, attempt=attempt)
    now = datetime.now(timezone.utc)
    logged = [task.log(result, now=now) for task, result in zip(tasks.values(), results, strict=True)]
    fault_point("log", driver_pid=plan.driver_pid, attempt=attempt)
    return logged


@contextmanager
def _without_gc() -> Iterator[None]:
    """Disable garbage collection: a million messages without reference cycles are expensive to scan."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@cache
def _freeze_once() -> None:
    """Exclude the modules that this worker has loaded for its first task from garbage collection.

    Spark collects garbage after each task. Scanning all loaded modules took more than half of the CPU of a small task.
    """
    freeze_loaded()


class _StreamTask:
    """Land one stream of a task: at full speed first, and again with isolation if a message may have caused an error."""

    def __init__(self, job: StreamJob, plan: TaskPlan, *, attempt: int) -> None:
        self.job = job
        self._plan = plan
        self._attempt = attempt
        self._name = f"{job.checkpoint_id}-{plan.subtask}-{plan.batch}-{attempt}"
        self._writer: _StreamWriter | None = None
        self._error: BaseException | None = None
        self._guard(lambda: self._open(self._name, careful=False))

    def take(self, records: Records) -> None:
        """Write the records, unless the stream has failed already."""
        if self._writer is not None and self._error is None:
            writer = self._writer
            self._guard(lambda: writer.take(records, driver_pid=self._plan.driver_pid, attempt=self._attempt))

    def fail(self, error: BaseException) -> None:
        """Give up the stream and discard its open files."""
        self._error = error
        self.abort()

    def finish(self, reader: RangeReader) -> StreamResult:
        """Return the stream's result. If a message may have caused an error, read the stream again with isolation first."""
        result = self._close()
        if result is None and self._error is not None and may_be_data(self._error):
            ranges = [part for part in self._plan.ranges if part.topic == self.job.stream.topic]
            self._error = None
            self._guard(lambda: self._open(f"{self._name}-isolated", careful=True))
            for records in reader.read(ranges, failed=lambda topic, error: self.fail(error)):
                self.take(records)
            result = self._close()
        return result or self._failed()

    def log(self, result: StreamResult, *, now: datetime) -> StreamResult:
        """Log the files of the result and return it, or a failure if logging fails."""
        if result.failure:
            return result
        try:
            log_files(
                self.job.commit_log,
                checkpoint_id=self.job.checkpoint_id,
                subtask=self._plan.subtask,
                batch=self._plan.batch,
                paths=[file.file_path for file in (*result.files, *result.quarantine_files)],
                now=now,
                storage=self._plan.storage,
            )
        except Exception as error:
            self._error = error
            return self._failed()
        return result

    def _failed(self) -> StreamResult:
        failure = describe_failure(self._error, hide=self._plan.storage.without_secrets)
        return StreamResult(self.job.label, 0, 0, [], [], failure=failure)

    def abort(self) -> None:
        if self._writer is not None:
            self._writer.abort()

    def _open(self, name: str, *, careful: bool) -> None:
        self._writer = _StreamWriter(self.job, name=name, storage=self._plan.storage, careful=careful)

    def _close(self) -> StreamResult | None:
        results: list[StreamResult] = []
        if self._writer is not None and self._error is None:
            writer = self._writer
            self._guard(lambda: results.append(writer.close()))
        return results[0] if results else None

    def _guard(self, work: Callable[[], None]) -> None:
        """Run `work`; an error fails only this stream. Injected faults and Spark's interrupts still end the task."""
        try:
            work()
        except InjectedError:
            raise
        except (Exception, PanicException) as error:
            self.fail(error)


class _StreamWriter:
    """Write the good and bad rows of one stream's messages.

    With `careful`, each chunk is tried in memory first and failing messages are isolated. This is several times slower.
    """

    def __init__(self, job: StreamJob, *, name: str, storage: Storage, careful: bool) -> None:
        self.job = job
        self._careful = careful
        self._format = _format(job.schema_json, job.spec_json)
        self._bad_format = _format(job.quarantine_schema_json, _NO_PARTITIONS)
        self._good = TableFiles(self._format, folder=job.output, name=f"{name}-{job.owner}", storage=storage)
        self._bad = TableFiles(self._bad_format, folder=job.quarantine_output, name=f"{job.label}-{name}", storage=storage)
        self._decoder = _decoder(job.stream, job.schema_json, job.spec_json, job.registry_url)
        self._rows = 0
        self._bad_rows = 0
        self._extras: Counter[str] = Counter()
        self._growth: dict[tuple[Column, ...], None] = {}
        self._refused: dict[str, None] = {}
        self._traces: list[str] = []

    def take(self, records: Records, *, driver_pid: int, attempt: int) -> None:
        """Write the records: as one block if all are good and their format allows it, else message by message."""
        table = None if self._careful else self._read_block(records)
        if table is not None:
            fault_point("decode", driver_pid=driver_pid, attempt=attempt)
            self._write(table)
        else:
            for messages in split_messages(records, rows=CHUNK_ROWS[self.job.stream.format]):
                self._take_messages(messages, driver_pid=driver_pid, attempt=attempt)
        fault_point("writing", driver_pid=driver_pid, attempt=attempt)

    def _read_block(self, records: Records) -> pa.Table | None:
        return rows_of_block(
            records,
            decoder=self._decoder,
            stream=self.job.stream,
            schema=self._format.arrow_schema,
            checkpoint_id=self.job.checkpoint_id,
        )

    def _split(self, messages: Messages) -> tuple[pa.Table, Decoded]:
        stream, checkpoint_id = self.job.stream, self.job.checkpoint_id
        if not self._careful:
            schema = self._format.arrow_schema
            return split_bad_rows(messages, decoder=self._decoder, stream=stream, schema=schema, checkpoint_id=checkpoint_id)
        table, decoded, traces = split_isolated(
            messages, decoder=self._decoder, stream=stream, form=self._format, checkpoint_id=checkpoint_id
        )
        self._traces += traces[: _MOST_TRACES - len(self._traces)]
        return table, decoded

    def _take_messages(self, messages: Messages, *, driver_pid: int, attempt: int) -> None:
        try:
            table, decoded = self._split(messages)
        except GrowthError as growth:
            self._growth.update(dict.fromkeys(growth.columns))
            return
        fault_point("decode", driver_pid=driver_pid, attempt=attempt)
        if self._growth:
            return  # keep looking for missing columns only: the batch will be read again
        self._extras.update(decoded.extras)
        self._refused.update(dict.fromkeys(decoded.refused))
        self._write(table)
        new = self._new(messages, decoded.bad)
        if new:
            self._bad.write(
                quarantine_rows(
                    messages,
                    new,
                    label=self.job.label,
                    schema=self._bad_format.arrow_schema,
                    checkpoint_id=self.job.checkpoint_id,
                )
            )
            self._bad_rows += len(new)

    def _write(self, table: pa.Table) -> None:
        if table.num_rows:
            reach_topic(self.job.stream.topic)
            self._good.write(table)
            self._rows += table.num_rows

    def close(self) -> StreamResult:
        if self._growth:
            self.abort()
            return StreamResult(self.job.label, 0, 0, [], [], growth=tuple(self._growth))
        good: list[DataFile] = list(self._good.close())
        bad: list[DataFile] = list(self._bad.close())
        return StreamResult(
            self.job.label,
            self._rows,
            self._bad_rows,
            good,
            bad,
            dict(self._extras),
            refused=tuple(self._refused),
            traces=tuple(self._traces),
        )

    def abort(self) -> None:
        self._good.abort()
        self._bad.abort()

    def _new(self, messages: Messages, bad: Mapping[int, str]) -> Mapping[int, str]:
        """Return the bad messages that are not in the quarantine yet."""
        if not bad or not self.job.refused_before:
            return bad
        partitions, offsets = (messages.places[name].to_pylist() for name in ("partition", "offset"))
        return {row: why for row, why in bad.items() if (partitions[row], offsets[row]) not in self.job.refused_before}


@lru_cache(maxsize=64)
def _format(schema_json: str, spec_json: str) -> TableFormat:
    """Return a table's format, cached in the worker."""
    return TableFormat(Schema.model_validate_json(schema_json), PartitionSpec.model_validate_json(spec_json))


@lru_cache(maxsize=64)
def _decoder(stream: Stream, schema_json: str, spec_json: str, registry_url: str) -> Decoder:
    """Return the decoder of a stream and its table's schema, cached in the worker."""
    return decoder_of(stream, _format(schema_json, spec_json).arrow_schema, registry_url=registry_url)
