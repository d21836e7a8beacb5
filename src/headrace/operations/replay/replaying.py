"""Replay messages beside a live run, in six steps. Nothing changes before step 3 is done for all streams.

1. Plan: find the landed offsets of the stream, and the offsets to read again.
2. Read: read the messages again, from Kafka or from the quarantine, into files of a scratch folder.
3. Compare: compare them with the current rows, message by message, and stage the differences.
4. Commit: replace the old rows, in one commit per raw table.
5. Settle: update the quarantine.
6. Build: rebuild everything downstream of the changed tables, in one commit per table.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timezone
from functools import partial
from typing import TYPE_CHECKING

from headrace.build.lake import Lake
from headrace.errors import ErasureError, OutdatedError
from headrace.faults import fault_point
from headrace.iceberg.catalog.tables import count_rows, load_table, table_location
from headrace.iceberg.commits.replay_commit import FilesMovedError, commit_replay
from headrace.iceberg.files.in_flight import check_in_time
from headrace.iceberg.files.storage import Storage
from headrace.iceberg.ledgers.build import read_build
from headrace.iceberg.ledgers.landing import offsets_label
from headrace.iceberg.ledgers.replay import ReplayLedger, Settlement, Window
from headrace.iceberg.metadata.erasures import read_erased_offsets, read_redacted_offsets
from headrace.iceberg.metadata.quarantine import QUARANTINE
from headrace.iceberg.metadata.quarantine_replay import flush_replayed, write_refused
from headrace.iceberg.rows.filters import column_is
from headrace.kafka.client import KafkaServers
from headrace.kafka.topics import admin_client
from headrace.landing.commit_log import log_files
from headrace.operations.replay.choice import ReplayRequest, choose, dependents
from headrace.operations.replay.compare import Counts, ExcludedMessages, ReplayDiff, compare, find_held
from headrace.operations.replay.decode_again import decode_again
from headrace.operations.replay.ranges import find_ranges
from headrace.operations.replay.refused_messages import check_edited, select_refused
from headrace.operations.replay.reread import Kafka, reread
from headrace.operations.replay.settling import refused_after
from headrace.operations.replay.target import (
    Staged,
    Target,
    in_window,
    plan_target,
    remove_scratch,
)
from headrace.servers.embedded import Report
from headrace.servers.kafka import kafka
from headrace.servers.registry import ExpectedRegistry
from headrace.sessions.building import Outcome, build, follow_inputs, open_lake
from headrace.sessions.claims import claim_tables
from headrace.sessions.lock import maintain_lock, replay_lock
from headrace.sessions.retry_policy import RetryPolicy, for_command, retry
from headrace.sessions.shared_spark import spark_session
from headrace.settings import Settings
from headrace.spark.active_session import use_session
from headrace.spec.model.pipeline import Pipeline, Stream, TableName

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_FEW_ROWS = 50_000
_TRIES = 3


@dataclass(frozen=True)
class ReplayedStream:
    """The result of a replay for a raw table, or its preview. `reasons` are the reasons of messages that are refused now."""

    label: str
    table: TableName
    read: int
    counts: Counts
    reasons: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Replayed:
    """The result of a replay, or with `dry_run` its preview. `rebuilds` are the tables to rebuild."""

    streams: tuple[ReplayedStream, ...]
    rebuilds: tuple[TableName, ...]
    outcomes: tuple[Outcome, ...] = ()
    dry_run: bool = False

    @property
    def holds(self) -> bool:
        return not any(outcome.error or outcome.because_of for outcome in self.outcomes)


@dataclass(frozen=True)
class _Prepared:
    """A stream that is ready to commit; its preparation began at `began` (epoch seconds)."""

    began: float
    target: Target
    read: Staged
    compared: ReplayDiff

    @property
    def done(self) -> ReplayedStream:
        target, bad = self.target, self.read.bad
        moments = zip(bad["reason"].to_pylist(), bad["timestamp"].to_pylist(), strict=True)
        reasons = Counter(reason for reason, moment in moments if in_window(moment, target.window))
        counts = self.compared.counts
        return ReplayedStream(target.label, target.stream.table, self.read.read, counts, dict(reasons.most_common()))


@dataclass(frozen=True)
class ReplaySession:
    """The session of a replay. `servers` is None if the replay does not read Kafka."""

    lake: Lake
    servers: KafkaServers | None = None

    @property
    def registry_url(self) -> str:
        needs_one = any(stream.may_need_registry for stream in self.lake.pipeline.streams)
        return ExpectedRegistry(self.lake.settings).find() if needs_one else ""


@contextmanager
def replaying_session(settings: Settings, pipeline: Pipeline, *, needs_kafka: bool, report: Report) -> Iterator[ReplaySession]:
    """Yield a session that locks out replays, erasures and maintenance of the pipeline. Landing and builds may run."""
    with replay_lock(settings, pipeline.name), maintain_lock(settings, pipeline.name), ExitStack() as stack:
        servers = stack.enter_context(kafka(settings, report=report)) if needs_kafka else None
        spark = stack.enter_context(spark_session(settings, report=report))
        retry_policy = for_command("replay", report=report)
        yield ReplaySession(retry(lambda: open_lake(settings, pipeline, spark), retry_policy), servers)


def replay(
    session: ReplaySession,
    request: ReplayRequest,
    *,
    dry_run: bool,
    built: Callable[[Outcome], None] = lambda outcome: None,
    retry_policy: RetryPolicy | None = None,
) -> Replayed:
    """Replay, and return the result. Idempotent: rows that are already right stay unchanged.

    Each step retries during outages with `retry_policy`.
    """
    lake = session.lake
    scope = choose(lake.pipeline, request)
    check_edited(lake.pipeline, scope, request)
    refresh = {table.table for table in scope.tables}
    if request.quarantined:
        refresh &= retry(lambda: _refused_by_tables(lake, request), retry_policy)
    refreshed = {*refresh, *(table.table for table in dependents(lake.pipeline, refresh))}
    with ExitStack() as scratch:
        prepare = partial(_prepare, session, request=request, stage=not dry_run, scratch=scratch)
        attempts = [retry(partial(prepare, stream), retry_policy) for stream in scope.streams]
        prepared = [stream for stream in attempts if stream is not None]
        changed = {stream.target.stream.table for stream in prepared if stream.compared.counts.changed}
        written = refreshed | {table.table for table in dependents(lake.pipeline, changed)}
        rebuilds = retry(lambda: _list_built(lake, written), retry_policy)
        if dry_run:
            return Replayed(tuple(stream.done for stream in prepared), rebuilds, dry_run=True)
        with claim_tables(lake.settings, lake.pipeline.name, written) as claims:
            done = tuple(_commit(lake, stream, request, prepare=prepare, retry_policy=retry_policy) for stream in prepared)
            for name in written.difference(rebuilds):
                claims.release(name)
            fault_point("replay:landed")

            def finished(outcome: Outcome) -> None:
                claims.release(outcome.table.table)
                built(outcome)

            outcomes: tuple[Outcome, ...] = ()
            if rebuilds:
                followed = retry(lambda: follow_inputs(lake), retry_policy)
                outcomes = build(followed, only=rebuilds, refresh=refreshed, done=finished, retry_policy=retry_policy)
    return Replayed(done, rebuilds, outcomes)


def _prepare(
    session: ReplaySession, stream: Stream, *, request: ReplayRequest, stage: bool, scratch: ExitStack
) -> _Prepared | None:
    """Steps 1 to 3. Return None if there is nothing to read again. `scratch` deletes the files when it is closed."""
    lake, began = session.lake, time.time()
    target = plan_target(lake.catalog, lake.settings, lake.pipeline, stream, window=request.window or Window())
    if target is None:
        return None
    excluded = _excluded_messages(lake, offsets_label(target.label, target.ledger.first_checkpoint))
    scratch.callback(remove_scratch, target)
    target, read = _read(session, target, request)
    if not read.read and not request.window:
        return None
    spark = _session_for(lake, read.read)
    whole = request.window is not None
    return _Prepared(began, target, read, compare(spark, target, read, excluded=excluded, whole=whole, stage=stage))


def _commit(
    lake: Lake,
    prepared: _Prepared,
    request: ReplayRequest,
    *,
    prepare: Callable[[Stream], _Prepared | None],
    retry_policy: RetryPolicy | None,
) -> ReplayedStream:
    """Steps 4 and 5. Prepare again if a commit replaced the table's files meanwhile, or the staged files are too old."""

    def try_commit(stream: _Prepared) -> FilesMovedError | OutdatedError | None:
        try:
            _replace_rows(lake, stream, same_bytes=request.edited is None)
        except (FilesMovedError, OutdatedError) as error:  # returned, because it is no outage that a retry would wait for
            return error
        return None

    for attempt in range(_TRIES):
        conflict = retry(partial(try_commit, prepared), retry_policy)
        if conflict is None:
            break
        again = retry(partial(prepare, prepared.target.stream), retry_policy)
        if again is None or attempt == _TRIES - 1:
            raise conflict
        prepared = again
    return prepared.done


def _read(session: ReplaySession, target: Target, request: ReplayRequest) -> tuple[Target, Staged]:
    """Step 2. Return the target and the messages that were read again."""
    lake = session.lake
    if request.window is None:
        edited = None if request.edited is None else request.edited.get(target.label, {})
        rows = select_refused(target, request)
        return decode_again(lake.catalog, target, rows, edited=edited, registry_url=session.registry_url)
    held = find_held(_session_for(lake, count_rows(target.table)), target)
    assert session.servers is not None
    ranges = find_ranges(admin_client(session.servers), target, held)
    where = Kafka(session.servers.task_config(), session.registry_url)
    return reread(lake.spark.sparkContext, lake.catalog, lake.settings, target, ranges, kafka=where)


def _replace_rows(lake: Lake, prepared: _Prepared, *, same_bytes: bool) -> None:
    """Commit the differences to the raw table, then to the quarantine. Do nothing without differences."""
    target, compared = prepared.target, prepared.compared
    after = refused_after(target, prepared.read, compared, same_bytes=same_bytes)
    if not compared.counts.changed and after is None:
        return
    checkpoint_id, name = target.ledger.checkpoint_id, target.stream.table
    settlement = None
    if after is not None:
        folder = f"{table_location(lake.settings, QUARANTINE)}/output"
        files = write_refused(target.quarantine, after, folder=folder, name=f"{target.label}-{target.replay_id}")
        settlement = Settlement(checkpoint_id, target.window, files, target.ledger.first_checkpoint)
    counts, planned = compared.counts, target.replay
    new = ReplayLedger(
        count=planned.count + (1 if counts.changed else 0),
        replay_id=target.replay_id,
        recovered=planned.recovered + counts.recovered - counts.refused,
        settlement=settlement,
    )
    paths = [str(file.location()) for file in compared.files.added]
    if paths:
        now, log = datetime.now(timezone.utc), target.places.commit_log
        log_files(
            log,
            checkpoint_id=checkpoint_id,
            subtask=0,
            batch=target.replay_id,
            paths=paths,
            now=now,
            storage=Storage.of(target.table.io.properties),
        )
    fault_point(f"{name}:staged")
    use_session(lake.small)
    check_in_time(lake.settings, began=prepared.began, where=str(name))
    entry = commit_replay(
        lake.small,
        lake.catalog,
        name,
        files=compared.files,
        planned=planned,
        new=new,
        rollbacks=target.ledger.rollbacks,
    )
    fault_point(f"{name}:replayed")
    flush_replayed(lake.catalog, target.quarantine, target.label, entry)
    fault_point(f"{name}:settled")


def _excluded_messages(lake: Lake, label: str) -> ExcludedMessages:
    redacted = read_redacted_offsets(lake.catalog, label)
    if redacted is None:
        raise ErasureError(
            "an old version of Headrace redacted rows for an erasure without recording which: a replay would restore them",
            where=label,
            next_step="Nothing was changed. This stream can't be replayed.",
        )
    return ExcludedMessages(read_erased_offsets(lake.catalog, label), redacted)


def _refused_by_tables(lake: Lake, request: ReplayRequest) -> frozenset[TableName]:
    """Return the layer tables that refused rows for the request's reason; none if messages were edited by hand."""
    quarantine = load_table(lake.catalog, QUARANTINE)
    if quarantine is None or request.edited is not None:
        return frozenset()
    names = set()
    for table in lake.pipeline.tables:
        label = str(table.table)
        rows = quarantine.scan(row_filter=column_is("stream", label), selected_fields=("reason",)).to_arrow()
        if any((request.reason or "") in (reason or "") for reason in rows["reason"].to_pylist()):
            names.add(table.table)
    return frozenset(names)


def _session_for(lake: Lake, rows: int) -> SparkSession:
    """Activate and return the Spark session for this number of rows."""
    scope = lake.small if rows <= _FEW_ROWS else lake.spark
    use_session(scope)
    return scope


def _list_built(lake: Lake, written: Collection[TableName]) -> tuple[TableName, ...]:
    """Return the tables that were built before, in build order."""
    names = (table.table for table in lake.pipeline.tables if table.table in written)
    return tuple(name for name in names if read_build(load_table(lake.catalog, name)).build_id > 0)
