"""Steps 2 to 5 of a batch, as one Spark task does them: read, decode, write, log."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timezone
from functools import lru_cache

import pyarrow as pa
from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyspark import TaskContext

from headrace.landing.batch import StreamJob, StreamResult, TaskPlan
from headrace.landing.commit_log import log_files
from headrace.landing.decode import CHUNK_ROWS, Decoder, GrowthError, decoder_of
from headrace.landing.read import reader_of_this_worker
from headrace.landing.records import Messages, Records, split_messages
from headrace.landing.rows import quarantine_rows, rows_of_block, split_bad_rows
from headrace.services.faults import reach
from headrace.spec.pipeline import Stream
from headrace.spec.types import Column
from headrace.tables.away import away_if_broken
from headrace.tables.files import TableFiles, TableFormat
from headrace.tables.storage import Storage

_NO_PARTITIONS = PartitionSpec().model_dump_json()


def run_tasks(plans: Iterable[TaskPlan]) -> Iterator[StreamResult]:
    """Runs in a Spark task: yields what became of each stream of each plan."""
    for plan in plans:
        with _without_gc(), away_if_broken():
            results = _run_task(plan)
        yield from results


def _run_task(plan: TaskPlan) -> list[StreamResult]:
    context = TaskContext.get()
    attempt = context.attemptNumber() if context else 0
    name = f"{plan.subtask}-{plan.batch}-{attempt}"
    writers = {
        job.stream.topic: _StreamWriter(job, name=f"{job.checkpoint_id}-{name}", storage=plan.storage) for job in plan.jobs
    }
    try:
        for records in reader_of_this_worker(plan.consumer).read(plan.ranges):
            reach("read", driver_pid=plan.driver_pid, attempt=attempt)
            writers[records.topic].take(records, driver_pid=plan.driver_pid, attempt=attempt)
        files = {topic: writer.close() for topic, writer in writers.items()}
    except BaseException:
        for writer in writers.values():
            writer.abort()
        raise
    reach("write", driver_pid=plan.driver_pid, attempt=attempt)
    now = datetime.now(timezone.utc)
    for topic, writer in writers.items():
        job = writer.job
        paths = [file.file_path for file in (*files[topic].files, *files[topic].quarantine_files)]
        log_files(
            job.commit_log,
            checkpoint_id=job.checkpoint_id,
            subtask=plan.subtask,
            batch=plan.batch,
            paths=paths,
            now=now,
            storage=plan.storage,
        )
    reach("log", driver_pid=plan.driver_pid, attempt=attempt)
    return list(files.values())


@contextmanager
def _without_gc() -> Iterator[None]:
    """Spares the search for cycles among a million messages, which have none."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


class _StreamWriter:
    """Takes one stream's messages and writes its good rows and its bad rows."""

    def __init__(self, job: StreamJob, *, name: str, storage: Storage) -> None:
        self.job = job
        self._format = _format(job.schema_json, job.spec_json)
        self._bad_format = _format(job.quarantine_schema_json, _NO_PARTITIONS)
        self._good = TableFiles(self._format, folder=job.output, name=f"{name}-{job.owner}", storage=storage)
        self._bad = TableFiles(self._bad_format, folder=job.quarantine_output, name=f"{job.label}-{name}", storage=storage)
        self._decoder = _decoder(job.stream, job.schema_json, job.spec_json, job.registry_url)
        self._quarantined_to = dict(job.quarantined_to)
        self._rows = 0
        self._bad_rows = 0
        self._extras: Counter[str] = Counter()
        self._growth: dict[tuple[Column, ...], None] = {}
        self._refused: dict[str, None] = {}

    def take(self, records: Records, *, driver_pid: int, attempt: int) -> None:
        """Writes the records: at once if all of them are good and their format allows it, else by messages."""
        table = rows_of_block(
            records,
            decoder=self._decoder,
            stream=self.job.stream,
            schema=self._format.arrow_schema,
            checkpoint_id=self.job.checkpoint_id,
        )
        if table is not None:
            reach("decode", driver_pid=driver_pid, attempt=attempt)
            self._write(table)
        else:
            for messages in split_messages(records, rows=CHUNK_ROWS[self.job.stream.format]):
                self._take_messages(messages, driver_pid=driver_pid, attempt=attempt)
        reach("writing", driver_pid=driver_pid, attempt=attempt)

    def _take_messages(self, messages: Messages, *, driver_pid: int, attempt: int) -> None:
        try:
            table, decoded = split_bad_rows(
                messages,
                decoder=self._decoder,
                stream=self.job.stream,
                schema=self._format.arrow_schema,
                checkpoint_id=self.job.checkpoint_id,
            )
        except GrowthError as growth:
            self._growth.update(dict.fromkeys(growth.columns))
            return
        reach("decode", driver_pid=driver_pid, attempt=attempt)
        if self._growth:
            return  # only to find all that the table lacks: the batch will be read again
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
            self._good.write(table)
            self._rows += table.num_rows

    def close(self) -> StreamResult:
        if self._growth:
            self.abort()
            return StreamResult(self.job.label, 0, 0, [], [], growth=tuple(self._growth))
        good: list[DataFile] = list(self._good.close())
        bad: list[DataFile] = list(self._bad.close())
        refused = tuple(self._refused)
        return StreamResult(self.job.label, self._rows, self._bad_rows, good, bad, dict(self._extras), refused=refused)

    def abort(self) -> None:
        self._good.abort()
        self._bad.abort()

    def _new(self, messages: Messages, bad: Mapping[int, str]) -> Mapping[int, str]:
        """Gives back those of the bad messages that are not in the quarantine already."""
        if not bad:
            return bad
        partitions, offsets = (messages.places[name].to_pylist() for name in ("partition", "offset"))
        return {row: why for row, why in bad.items() if offsets[row] >= self._quarantined_to.get(partitions[row], 0)}


@lru_cache(maxsize=64)
def _format(schema_json: str, spec_json: str) -> TableFormat:
    """A table's format is worked out once and kept by the worker."""
    return TableFormat(Schema.model_validate_json(schema_json), PartitionSpec.model_validate_json(spec_json))


@lru_cache(maxsize=64)
def _decoder(stream: Stream, schema_json: str, spec_json: str, registry_url: str) -> Decoder:
    """A decoder is made once for a stream and its table's schema, and kept by the worker."""
    return decoder_of(stream, _format(schema_json, spec_json).arrow_schema, registry_url=registry_url)
