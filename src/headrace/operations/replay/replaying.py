"""Replaying as a command does it, beside a live run, in six steps. Nothing is changed before all streams are through the third.

1. Plan: how far the stream was landed, and which offsets are meant.
2. Read: the messages again, from Kafka or from the quarantine, into files that no table looks at.
3. Compare: with the rows that are there, message by message; what differs is staged.
4. Commit: the new rows in the place of the old ones, in one step for each raw table.
5. Settle: the quarantine follows.
6. Build: what is made of the changed tables is written anew, each table in one step.
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
from headrace.operations.replay.choice import Wanted, choose, dependents
from headrace.operations.replay.compare import Compared, Counts, LeftAlone, compare, find_held
from headrace.operations.replay.decode_again import decode_again
from headrace.operations.replay.mending import check_mended, select_refused
from headrace.operations.replay.ranges import find_ranges
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
from headrace.sessions.landing import spark_session
from headrace.sessions.lock import maintain_lock, replay_lock
from headrace.sessions.retry_policy import RetryPolicy, for_command, retry
from headrace.settings import Settings
from headrace.spark.active_session import use_session
from headrace.spec.model.pipeline import Pipeline, Stream, TableName

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_FEW_ROWS = 50_000
_TRIES = 3


@dataclass(frozen=True)
class ReplayedStream:
    """What a replay did to a raw table, or would do. `reasons` are those for which messages are refused now."""

    label: str
    table: TableName
    read: int
    counts: Counts
    reasons: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Replayed:
    """What a replay did, or with `dry_run` would do. `rebuilds` are the tables that are written anew."""

    streams: tuple[ReplayedStream, ...]
    rebuilds: tuple[TableName, ...]
    outcomes: tuple[Outcome, ...] = ()
    dry_run: bool = False

    @property
    def holds(self) -> bool:
        return not any(each.error or each.because_of for each in self.outcomes)


@dataclass(frozen=True)
class _Prepared:
    """A stream that is ready to be committed; it was begun when `began` says (seconds since 1970)."""

    began: float
    target: Target
    read: Staged
    compared: Compared

    @property
    def done(self) -> ReplayedStream:
        target, bad = self.target, self.read.bad
        moments = zip(bad["reason"].to_pylist(), bad["timestamp"].to_pylist(), strict=True)
        reasons = Counter(reason for reason, moment in moments if in_window(moment, target.window))
        counts = self.compared.counts
        return ReplayedStream(target.label, target.stream.table, self.read.read, counts, dict(reasons.most_common()))


@dataclass(frozen=True)
class Replaying:
    """What a replay works with; `servers` is Kafka, where it is asked."""

    lake: Lake
    servers: KafkaServers | None = None

    @property
    def registry_url(self) -> str:
        needs_one = any(each.may_need_registry for each in self.lake.pipeline.streams)
        return ExpectedRegistry(self.lake.settings).find() if needs_one else ""


@contextmanager
def replaying_session(settings: Settings, pipeline: Pipeline, *, needs_kafka: bool, report: Report) -> Iterator[Replaying]:
    """Yield a session in which nobody else replays the pipeline, erases from it or compacts it; others may land and build."""
    with replay_lock(settings, pipeline.name), maintain_lock(settings, pipeline.name), ExitStack() as stack:
        servers = stack.enter_context(kafka(settings, report=report)) if needs_kafka else None
        spark = stack.enter_context(spark_session(settings, report=report))
        retry_policy = for_command("replay", report=report)
        yield Replaying(retry(lambda: open_lake(settings, pipeline, spark), retry_policy), servers)


def replay(
    replaying: Replaying,
    wanted: Wanted,
    *,
    dry_run: bool,
    built: Callable[[Outcome], None] = lambda outcome: None,
    retry_policy: RetryPolicy | None = None,
) -> Replayed:
    """Return what was replayed. Idempotent: what is right already is left as it is.

    Each step waits with `retry_policy` for servers that are away.
    """
    lake = replaying.lake
    chosen = choose(lake.pipeline, wanted)
    check_mended(lake.pipeline, chosen, wanted)
    refresh = {each.table for each in chosen.tables}
    if wanted.quarantined:
        refresh &= retry(lambda: _refused_by_tables(lake, wanted), retry_policy)
    anew = {*refresh, *(each.table for each in dependents(lake.pipeline, refresh))}
    with ExitStack() as scratch:
        prepare = partial(_prepare, replaying, wanted=wanted, stage=not dry_run, scratch=scratch)
        found = [retry(partial(prepare, each), retry_policy) for each in chosen.streams]
        prepared = [each for each in found if each is not None]
        below = dependents(lake.pipeline, {each.target.stream.table for each in prepared if each.compared.counts.changed})
        written = anew | {each.table for each in below}
        rebuilds = retry(lambda: _list_built(lake, written), retry_policy)
        if dry_run:
            return Replayed(tuple(each.done for each in prepared), rebuilds, dry_run=True)
        with claim_tables(lake.settings, lake.pipeline.name, written) as claims:
            done = tuple(_commit(lake, each, wanted, prepare=prepare, retry_policy=retry_policy) for each in prepared)
            for name in written.difference(rebuilds):
                claims.release(name)
            fault_point("replay:landed")

            def finished(outcome: Outcome) -> None:
                claims.release(outcome.table.table)
                built(outcome)

            outcomes: tuple[Outcome, ...] = ()
            if rebuilds:
                followed = retry(lambda: follow_inputs(lake), retry_policy)
                outcomes = build(followed, only=rebuilds, refresh=anew, done=finished, retry_policy=retry_policy)
    return Replayed(done, rebuilds, outcomes)


def _prepare(replaying: Replaying, stream: Stream, *, wanted: Wanted, stage: bool, scratch: ExitStack) -> _Prepared | None:
    """Steps 1 to 3. What is kept until the commit is deleted with `scratch`; None where nothing is to be read again."""
    lake, began = replaying.lake, time.time()
    target = plan_target(lake.catalog, lake.settings, lake.pipeline, stream, window=wanted.window or Window())
    if target is None:
        return None
    left_alone = _left_alone(lake, offsets_label(target.label, target.ledger.first_checkpoint))
    scratch.callback(remove_scratch, target)
    target, read = _read(replaying, target, wanted)
    if not read.read and not wanted.window:
        return None
    session = _session_for(lake, read.read)
    whole = wanted.window is not None
    return _Prepared(began, target, read, compare(session, target, read, left_alone=left_alone, whole=whole, stage=stage))


def _commit(
    lake: Lake,
    prepared: _Prepared,
    wanted: Wanted,
    *,
    prepare: Callable[[Stream], _Prepared | None],
    retry_policy: RetryPolicy | None,
) -> ReplayedStream:
    """Steps 4 and 5; after the first three again where the table's files were written anew meanwhile or its own are too old."""

    def put(one: _Prepared) -> FilesMovedError | OutdatedError | None:
        try:
            _put_in_place(lake, one, same_bytes=wanted.mended is None)
        except (FilesMovedError, OutdatedError) as error:  # no server that waiting helps with
            return error
        return None

    for attempt in range(_TRIES):
        in_the_way = retry(partial(put, prepared), retry_policy)
        if in_the_way is None:
            break
        again = retry(partial(prepare, prepared.target.stream), retry_policy)
        if again is None or attempt == _TRIES - 1:
            raise in_the_way
        prepared = again
    return prepared.done


def _read(replaying: Replaying, target: Target, wanted: Wanted) -> tuple[Target, Staged]:
    """Step 2."""
    lake = replaying.lake
    if wanted.window is None:
        mended = None if wanted.mended is None else wanted.mended.get(target.label, {})
        rows = select_refused(target, wanted)
        return decode_again(lake.catalog, target, rows, mended=mended, registry_url=replaying.registry_url)
    held = find_held(_session_for(lake, count_rows(target.table)), target)
    assert replaying.servers is not None
    ranges = find_ranges(admin_client(replaying.servers), target, held)
    where = Kafka(replaying.servers.task_config(), replaying.registry_url)
    return reread(lake.spark.sparkContext, lake.catalog, lake.settings, target, ranges, kafka=where)


def _put_in_place(lake: Lake, prepared: _Prepared, *, same_bytes: bool) -> None:
    """Commit what differs, and the quarantine after it; nothing where nothing does."""
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


def _left_alone(lake: Lake, label: str) -> LeftAlone:
    redacted = read_redacted_offsets(lake.catalog, label)
    if redacted is None:
        raise ErasureError(
            "rows of it were redacted for a person by a version of Headrace that did not note which: they would come back",
            where=label,
            next_step="It can't be replayed.",
        )
    return LeftAlone(read_erased_offsets(lake.catalog, label), redacted)


def _refused_by_tables(lake: Lake, wanted: Wanted) -> frozenset[TableName]:
    """Return the layer tables that refused rows for the reasons that are meant; none where messages were mended."""
    quarantine = load_table(lake.catalog, QUARANTINE)
    if quarantine is None or wanted.mended is not None:
        return frozenset()
    found = set()
    for table in lake.pipeline.tables:
        label = str(table.table)
        rows = quarantine.scan(row_filter=column_is("stream", label), selected_fields=("reason",)).to_arrow()
        if any((wanted.reason or "") in (reason or "") for reason in rows["reason"].to_pylist()):
            found.add(table.table)
    return frozenset(found)


def _session_for(lake: Lake, rows: int) -> SparkSession:
    """Return the session that suits so many rows, which is then the active one of this thread."""
    chosen = lake.small if rows <= _FEW_ROWS else lake.spark
    use_session(chosen)
    return chosen


def _list_built(lake: Lake, written: Collection[TableName]) -> tuple[TableName, ...]:
    """Return those of the tables, in order, that were built before."""
    names = (each.table for each in lake.pipeline.tables if each.table in written)
    return tuple(name for name in names if read_build(load_table(lake.catalog, name)).build_id > 0)
