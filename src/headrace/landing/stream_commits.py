"""Step 6 of a batch: commit each stream's files with its new ledger entry, then flush the quarantined rows."""

from __future__ import annotations

import logging
import time
import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import MappingProxyType

from pyiceberg.catalog import Catalog
from pyiceberg.manifest import DataFile

from headrace.errors import RetryableError, TakenOverError
from headrace.faults import fault_point
from headrace.iceberg.commits.append import append_checkpoint
from headrace.iceberg.ledgers.landing import Ledger, read_ledger
from headrace.iceberg.ledgers.replay import read_replay
from headrace.iceberg.metadata.quarantine import flush_quarantine, open_quarantine, paths_of
from headrace.iceberg.metadata.quarantine_replay import flush_replayed
from headrace.landing.batch import Range, StreamResult
from headrace.landing.failures import concerns_all
from headrace.landing.landed import Landed, LandingStream
from headrace.landing.stream_failures import StreamFailures
from headrace.logs import log_fields
from headrace.settings import Settings

_LOG = logging.getLogger(__name__)
_COMMITS_AT_ONCE = 2  # a commit is mostly Python's own work: with more at once none ends sooner, and the first ends later


class StreamCommits:
    """Commits checkpoints of streams. `quarantine` is the table of quarantined rows as last read."""

    def __init__(
        self, settings: Settings, pipeline: str, streams: Sequence[LandingStream], *, catalog: Catalog, failures: StreamFailures
    ) -> None:
        self._pipeline = pipeline
        self._streams = streams
        self._catalog = catalog
        self._failures = failures
        self.quarantine = open_quarantine(catalog, settings)
        self.flush_quarantine()
        for stream in streams:  # a replay that died may have left its rows unflushed
            self.quarantine = flush_replayed(catalog, self.quarantine, stream.label, read_replay(stream.table))

    def commit(
        self,
        active: Sequence[LandingStream],
        ranges: Sequence[Range],
        results: Mapping[str, Sequence[StreamResult]],
        *,
        started: float,
    ) -> tuple[Landed, ...]:
        """Commit the results of streams, several tables at a time, and flush their quarantined rows.

        A stream whose commit fails waits for its retry. Raises an error that concerns all streams.
        """
        with ThreadPoolExecutor(max_workers=_COMMITS_AT_ONCE) as pool:
            futures = [
                pool.submit(self._commit_stream, stream, ranges, results[stream.label], started=started) for stream in active
            ]
        errors = [(stream, error) for stream, future in zip(active, futures, strict=True) if (error := future.exception())]
        fault_point("committing")
        known = {file.file_path: file for parts in results.values() for part in parts for file in part.quarantine_files}
        self.flush_quarantine(known)
        for _, error in errors:
            if concerns_all(error):
                raise error
        for stream, error in errors:
            self._failures.fail_or_raise(stream, error)
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
        self.append(stream, files, new)
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

    def append(self, stream: LandingStream, files: Sequence[DataFile], new: Ledger) -> None:
        """Commit the next checkpoint of a stream.

        Idempotent by the entry's writer: raises a RetryableError if an earlier commit succeeded after its response was lost.
        """
        entry = replace(new, checkpoint_id=new.checkpoint_id + 1, writer=str(uuid.uuid4()))
        try:
            stream.table = append_checkpoint(self._catalog, stream.table, files=files, planned=stream.ledger, new=entry)
        except TakenOverError as error:
            if not self._adopt_late_commit(stream):
                raise
            raise RetryableError(
                "an earlier commit succeeded after its response was lost",
                where=str(stream.stream.table),
                next_step="Nothing was written twice. Headrace retries from that commit.",
            ) from error
        except Exception:
            stream.unsure += (entry.writer,)
            raise
        stream.ledger, stream.unsure, stream.failure = read_ledger(stream.table), (), None

    def finish(self) -> None:
        """Before a new batch, adopt commits whose response was lost and flush quarantined rows."""
        for stream in self._streams:
            try:
                self._adopt_late_commit(stream)
            except Exception as error:
                self._failures.fail_or_raise(stream, error)
        self.flush_quarantine()

    def flush_quarantine(self, known: Mapping[str, DataFile] | None = None) -> None:
        """Append the quarantine files of the streams' ledgers that are not in the quarantine yet. `known` are files by path."""
        ledgers = {stream.label: stream.ledger for stream in self._streams}
        self.quarantine = flush_quarantine(self._catalog, self.quarantine, ledgers, known=known)

    def _adopt_late_commit(self, stream: LandingStream) -> bool:
        """Continue from a commit whose response was lost, if the table has it; return whether it does."""
        if not stream.unsure:
            return False
        table = self._catalog.load_table(stream.table.name())
        if read_ledger(table).writer not in stream.unsure:
            return False
        stream.table, stream.ledger, stream.unsure = table, read_ledger(table), ()
        return True
