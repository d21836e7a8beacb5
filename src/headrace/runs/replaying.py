"""Replaying as a command does it, beside a live run, in five steps for each raw table and one for all that is made of them.

1. Plan: how far the stream was landed, and which offsets are meant.
2. Read: the messages again, from Kafka or from the quarantine, into files that no table looks at.
3. Compare: with the rows that are there, message by message; what differs is staged.
4. Commit: the new rows in the place of the old ones, in one step.
5. Settle: the quarantine follows.
6. Build: what is made of the changed tables is written anew, each table in one step.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path

import pyarrow as pa

from headrace.errors import ErasureError, LandingError, SettingsError, SpecError
from headrace.landing.commit_log import log_files
from headrace.landing.replay.compare import Compared, Counts, LeftAlone, compare, find_held
from headrace.landing.replay.decode_again import decode_again
from headrace.landing.replay.mended import read_lines, to_lines
from headrace.landing.replay.ranges import find_ranges
from headrace.landing.replay.reread import Kafka, reread
from headrace.landing.replay.settling import refused_after
from headrace.landing.replay.target import (
    Coordinates,
    Staged,
    Target,
    coordinates,
    in_window,
    plan_target,
    remove_scratch,
)
from headrace.layers.lake import Lake
from headrace.runs.building import Outcome, build, follow_inputs, open_lake
from headrace.runs.claims import claim_tables
from headrace.runs.landing import spark_session
from headrace.runs.lock import replay_lock
from headrace.services.embedded import Report
from headrace.services.faults import reach
from headrace.services.kafka import kafka
from headrace.services.registry import find_registry
from headrace.services.topics import admin_client
from headrace.settings import Settings
from headrace.sources.encode import encoder_of
from headrace.spec.layers import LayerTable
from headrace.spec.pipeline import Pipeline, Stream, TableName
from headrace.spec.problems import suggest
from headrace.tables.build_ledger import read_build
from headrace.tables.catalog import load_table, open_catalog, table_location
from headrace.tables.erasures import read_erased_offsets, read_redacted_offsets
from headrace.tables.filters import column_is
from headrace.tables.quarantine import QUARANTINE
from headrace.tables.quarantine_replay import settle_replayed, write_refused
from headrace.tables.replay_commit import FilesMovedError, commit_replay
from headrace.tables.replay_ledger import ReplayLedger, Settlement, Window
from headrace.tables.spark_catalog import use_session

_FEW_ROWS = 50_000
_TRIES = 3


@dataclass(frozen=True)
class Wanted:
    """What is to be replayed: `window` is read again from Kafka, `quarantined` decodes what was refused, and neither of them
    writes layer tables anew from what raw tables have.

    `reason` is a part of the reasons that are meant. `mended` has bytes by stream and message: then only these are meant.
    """

    window: Window | None = None
    quarantined: bool = False
    table: str | None = None
    reason: str | None = None
    mended: Mapping[str, Mapping[Coordinates, bytes]] | None = None


@dataclass(frozen=True)
class Chosen:
    """The streams whose messages are read again, and the tables that are written anew in any case."""

    streams: tuple[Stream, ...] = ()
    tables: tuple[LayerTable, ...] = ()


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
class Replaying:
    """What a replay works with; `servers` is Kafka, where it is asked."""

    lake: Lake
    servers: str = ""

    @property
    def registry_url(self) -> str:
        has_changes = any(each.format == "debezium" for each in self.lake.pipeline.streams)
        return (find_registry(self.lake.settings) or "") if has_changes else ""


@contextmanager
def replaying_session(settings: Settings, pipeline: Pipeline, *, needs_kafka: bool, report: Report) -> Iterator[Replaying]:
    """Gives a session in which nobody else replays the pipeline or erases from it; others may land and build."""
    with replay_lock(settings, pipeline.name), ExitStack() as stack:
        servers = stack.enter_context(kafka(settings, report=report)) if needs_kafka else ""
        spark = stack.enter_context(spark_session(settings, report=report))
        yield Replaying(open_lake(settings, pipeline, spark), servers)


def choose(pipeline: Pipeline, wanted: Wanted) -> Chosen:
    """Gives back what a replay is about; a table that is not the pipeline's is a SpecError.

    A layer table means the raw tables that it is made of, where Kafka is read again, and else itself.
    """
    by_name = {each.table: each for each in pipeline.tables}
    if wanted.table is None:
        return Chosen(pipeline.streams if _reads(wanted) else (), () if wanted.window else pipeline.tables)
    streams = tuple(each for each in pipeline.streams if wanted.table in (each.table.name, str(each.table)))
    tables = tuple(each for each in pipeline.tables if wanted.table in (each.table.name, str(each.table)))
    streams = tuple(each for each in streams if str(each.table) == wanted.table) or streams
    tables = tuple(each for each in tables if str(each.table) == wanted.table) or tables
    if len(streams) + len(tables) != 1:
        names = [*(str(each.table) for each in pipeline.streams), *(str(each) for each in by_name)]
        what = f'several tables are called "{wanted.table}"' if streams or tables else f'there is no table "{wanted.table}"'
        raise SpecError(what, where=f"pipeline {pipeline.name}", next_step=suggest(wanted.table, names, plural="Tables"))
    if tables and wanted.window:
        above = _made_of(pipeline, tables[0])
        return Chosen(tuple(each for each in pipeline.streams if each.table in above))
    if streams and not _reads(wanted):
        return Chosen((), dependents(pipeline, {streams[0].table}))
    return Chosen(streams, tables)


def dependents(pipeline: Pipeline, names: set[TableName]) -> tuple[LayerTable, ...]:
    """Gives back the layer tables that are made of these tables, in the order in which they are built; lookups count."""
    found = set(names)
    tables = []
    for each in pipeline.tables:
        if found.intersection(each.inputs):
            found.add(each.table)
            tables.append(each)
    return tuple(tables)


def replay(
    replaying: Replaying,
    wanted: Wanted,
    *,
    dry_run: bool,
    replayed: Callable[[ReplayedStream], None] = lambda one: None,
    built: Callable[[Outcome], None] = lambda outcome: None,
) -> Replayed:
    """Gives back what was replayed. Idempotent: what is right already is left as it is."""
    lake = replaying.lake
    chosen = choose(lake.pipeline, wanted)
    _check_mended(lake.pipeline, chosen, wanted)
    refresh = {each.table for each in chosen.tables}
    if wanted.quarantined:
        refresh &= {TableName.parse(label) for label in _refused_by_tables(lake, wanted)}
    anew = {*refresh, *(each.table for each in dependents(lake.pipeline, refresh))}
    touched = {each.table for each in chosen.streams}
    claimed = {*anew, *(each.table for each in dependents(lake.pipeline, touched))}
    with ExitStack() as stack:
        claims = None if dry_run else stack.enter_context(claim_tables(lake.settings, lake.pipeline.name, claimed))
        done = []
        for stream in chosen.streams:
            one = _replay_stream(replaying, stream, wanted, dry_run=dry_run)
            if one is not None:
                replayed(one)
                done.append(one)
        changed = {one.table for one in done if one.counts.changed}
        below = {each.table for each in dependents(lake.pipeline, changed)}
        rebuilds = tuple(
            each.table
            for each in lake.pipeline.tables
            if each.table in anew | below and read_build(load_table(lake.catalog, each.table)).build_id
        )
        if claims is None:
            return Replayed(tuple(done), rebuilds, dry_run=True)

        def finished(outcome: Outcome) -> None:
            claims.release(outcome.table.table)
            built(outcome)

        for name in claimed.difference(rebuilds):
            claims.release(name)
        reach("replay:landed")
        outcomes = _rebuild(lake, rebuilds, forced=anew, done=finished) if rebuilds else ()
    return Replayed(tuple(done), rebuilds, outcomes)


def export_refused(settings: Settings, pipeline: Pipeline, wanted: Wanted, path: Path) -> int:
    """Writes the refused messages that are meant as lines of JSON, to be mended by hand; gives back how many they are."""
    catalog, lines = open_catalog(settings), []
    for stream in choose(pipeline, wanted).streams:
        target = plan_target(catalog, settings, pipeline, stream, window=Window())
        if target is not None:
            lines += to_lines(_meant(target, wanted))
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return len(lines)


def read_mended(pipeline: Pipeline, path: Path) -> dict[str, dict[Coordinates, bytes]]:
    """Gives back the bytes of messages that were mended by hand, by stream."""
    streams = {f"{pipeline.name}.{each.name}": each for each in pipeline.streams if each.format != "debezium"}

    def encode(stream: str, event: Mapping[str, object]) -> bytes:
        if stream not in streams:
            raise TypeError("only events of the pipeline's JSON and Avro streams can be encoded")
        return encoder_of(streams[stream])(event)

    return read_lines(path, encode=encode)


def _rebuild(
    lake: Lake, tables: Sequence[TableName], *, forced: set[TableName], done: Callable[[Outcome], None]
) -> tuple[Outcome, ...]:
    """Step 6. Tables that are made of replayed rows plan that by themselves; `forced` are written anew in any case."""
    lake = follow_inputs(lake)
    return build(lake, only=tables, refresh=forced, done=done)


def _replay_stream(replaying: Replaying, stream: Stream, wanted: Wanted, *, dry_run: bool) -> ReplayedStream | None:
    """Steps 1 to 5, again from the beginning where the table's files were written anew meanwhile."""
    for attempt in range(_TRIES):
        try:
            return _try_stream(replaying, stream, wanted, dry_run=dry_run)
        except FilesMovedError:
            if attempt == _TRIES - 1:
                raise
    return None


def _try_stream(replaying: Replaying, stream: Stream, wanted: Wanted, *, dry_run: bool) -> ReplayedStream | None:
    lake = replaying.lake
    window = wanted.window or Window()
    target = plan_target(lake.catalog, lake.settings, lake.pipeline, stream, window=window)
    if target is None:
        return None
    left_alone = _left_alone(lake, target.label)
    try:
        target, read = _read(replaying, target, wanted)
        if not read.read and not wanted.window:
            return None
        lake = _session_for(lake, read.read)
        compared = compare(lake.spark, target, read, left_alone=left_alone, whole=wanted.window is not None, stage=not dry_run)
        if not dry_run:
            _put_in_place(lake, target, read, compared, same_bytes=wanted.mended is None)
    finally:
        remove_scratch(target)
    moments = zip(read.bad["reason"].to_pylist(), read.bad["timestamp"].to_pylist(), strict=True)
    reasons = Counter(reason for reason, moment in moments if in_window(moment, window))
    return ReplayedStream(target.label, stream.table, read.read, compared.counts, dict(reasons.most_common()))


def _read(replaying: Replaying, target: Target, wanted: Wanted) -> tuple[Target, Staged]:
    """Step 2."""
    lake = replaying.lake
    if wanted.window is None:
        mended = None if wanted.mended is None else wanted.mended.get(target.label, {})
        rows = _meant(target, wanted)
        return decode_again(lake.catalog, target, rows, mended=mended, registry_url=replaying.registry_url)
    use_session(lake.small)
    held = find_held(lake.small, target)
    ranges = find_ranges(admin_client(replaying.servers), target, held)
    where = Kafka({"bootstrap.servers": replaying.servers}, replaying.registry_url)
    return reread(lake.spark.sparkContext, lake.catalog, lake.settings, target, ranges, kafka=where)


def _meant(target: Target, wanted: Wanted) -> pa.Table:
    """Gives back the refused messages that are meant."""
    rows = target.landed_aside()
    if wanted.reason is not None:
        rows = rows.filter(pa.array([wanted.reason in (each or "") for each in rows["reason"].to_pylist()], pa.bool_()))
    if wanted.mended is None:
        return rows
    mended = wanted.mended.get(target.label, {})
    places = coordinates(rows)
    unknown = sorted(mended.keys() - set(places))
    if unknown:
        partition, offset = unknown[0]
        raise LandingError(
            f"the quarantine has no message at partition {partition}, offset {offset} of it",
            where=target.label,
            next_step="Nothing was changed. It may have been replayed already; see what is there with: "
            f"headrace replay {target.label.split('.')[0]} --quarantined --dry-run",
        )
    return rows.filter(pa.array([at in mended for at in places], pa.bool_()))


def _put_in_place(lake: Lake, target: Target, read: Staged, compared: Compared, *, same_bytes: bool) -> None:
    """Steps 4 and 5; nothing where nothing differs."""
    after = refused_after(target, read, compared, same_bytes=same_bytes)
    if not compared.counts.changed and after is None:
        return
    checkpoint_id, name = target.ledger.checkpoint_id, target.stream.table
    settlement = None
    if after is not None:
        folder = f"{table_location(lake.settings, QUARANTINE)}/output"
        files = write_refused(target.quarantine, after, folder=folder, name=f"{target.label}-{target.replay_id}")
        settlement = Settlement(checkpoint_id, target.window, files)
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
        log_files(log, checkpoint_id=checkpoint_id, subtask=0, batch=target.replay_id, paths=paths, now=now)
    reach(f"{name}:staged")
    entry = commit_replay(
        lake.spark,
        lake.catalog,
        name,
        files=compared.files,
        planned=planned,
        new=new,
        rollbacks=target.ledger.rollbacks,
    )
    reach(f"{name}:replayed")
    settle_replayed(lake.catalog, target.quarantine, target.label, entry)
    reach(f"{name}:settled")


def _check_mended(pipeline: Pipeline, chosen: Chosen, wanted: Wanted) -> None:
    """Refuses mended messages of what is not read again: rows that a layer table refuses are made of its inputs."""
    known = {f"{pipeline.name}.{each.name}" for each in chosen.streams}
    for label in sorted((wanted.mended or {}).keys() - known):
        is_built = label in {str(each.table) for each in pipeline.tables}
        raise SettingsError(
            "rows of a layer table are made of its inputs, and can't be mended there"
            if is_built
            else "no such stream is meant",
            where=label,
            next_step=f"Nothing was changed. Streams are: {', '.join(sorted(known))}",
        )


def _left_alone(lake: Lake, label: str) -> LeftAlone:
    redacted = read_redacted_offsets(lake.catalog, label)
    if redacted is None:
        raise ErasureError(
            "rows of it were redacted for a person by a version of Headrace that did not note which: they would come back",
            where=label,
            next_step="It can't be replayed.",
        )
    return LeftAlone(read_erased_offsets(lake.catalog, label), redacted)


def _refused_by_tables(lake: Lake, wanted: Wanted) -> frozenset[str]:
    """Gives back the layer tables that refused rows for the reasons that are meant; none where messages were mended."""
    quarantine = load_table(lake.catalog, QUARANTINE)
    if quarantine is None or wanted.mended is not None:
        return frozenset()
    found = set()
    for table in lake.pipeline.tables:
        label = str(table.table)
        rows = quarantine.scan(row_filter=column_is("stream", label), selected_fields=("reason",)).to_arrow()
        if any((wanted.reason or "") in (reason or "") for reason in rows["reason"].to_pylist()):
            found.add(label)
    return frozenset(found)


def _session_for(lake: Lake, rows: int) -> Lake:
    """Gives back the lake with the session that suits so many rows, which is then the active one of this thread."""
    chosen = replace(lake, spark=lake.small) if rows <= _FEW_ROWS else lake
    use_session(chosen.spark)
    return chosen


def _reads(wanted: Wanted) -> bool:
    return wanted.window is not None or wanted.quarantined


def _made_of(pipeline: Pipeline, table: LayerTable) -> set[TableName]:
    """Gives back all that a table is made of."""
    found = {table.table}
    for each in reversed(pipeline.tables):
        if each.table in found:
            found |= set(each.inputs)
    return found
