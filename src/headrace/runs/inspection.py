"""What can be said of a pipeline's tables without Spark: status, commits, verification."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone

from pyiceberg.table import Table

from headrace.errors import LandingError
from headrace.landing.history import LoggedFile, list_commits
from headrace.landing.places import places_of
from headrace.landing.verify import Verified, verify_stream
from headrace.layers.plan import plan_table
from headrace.services.topics import admin_client, list_bounds, list_partitions
from headrace.settings import Settings
from headrace.spec.layers import LayerTable
from headrace.spec.pipeline import Pipeline, Stream, TableName
from headrace.tables.build_ledger import BuildLedger, CheckedExpectation
from headrace.tables.catalog import load_table, open_catalog
from headrace.tables.ledger import read_ledger
from headrace.tables.quarantine import QUARANTINE


@dataclass(frozen=True)
class TableStatus:
    """A layer table's figures. `behind_seconds` is how long something that it is made of, directly or by way of other tables,
    has been newer than its last build; None where it was never built. `failing` are the expectations of the last build that
    rows failed. Where the table has a `watermark`, rows behind it count as late; `late_rows` is how many there were."""

    table: str
    kind: str
    rows: int
    build_id: int
    last_build: datetime | None
    behind_seconds: float | None
    expectations: int
    failing: tuple[CheckedExpectation, ...]
    watermark: datetime | None = None
    late_rows: int | None = None


@dataclass(frozen=True)
class StreamStatus:
    """A stream's figures. `lag` is None where Kafka does not run; `extras` counts fields that the schema does not name."""

    label: str
    topic: str
    table: str
    rows: int
    checkpoint_id: int
    quarantined: int
    lag: int | None
    last_commit: datetime | None
    extras: Mapping[str, int]
    gaps: tuple[tuple[int, int, int], ...]


def list_streams(settings: Settings, pipeline: Pipeline, *, bootstrap_servers: str | None) -> tuple[StreamStatus, ...]:
    """Gives back the status of each stream, also of those that nothing has landed in yet."""
    catalog = open_catalog(settings)
    return tuple(
        _status(f"{pipeline.name}.{stream.name}", stream, load_table(catalog, stream.table), bootstrap_servers)
        for stream in pipeline.streams
    )


def list_layer_tables(settings: Settings, pipeline: Pipeline, *, now: datetime) -> tuple[TableStatus, ...]:
    """Gives back the status of each layer table, in the order in which they are built."""
    catalog = open_catalog(settings)
    names = {name for table in pipeline.tables for name in (table.table, *table.inputs)}
    known = {name: load_table(catalog, name) for name in names}
    behind: dict[TableName, float] = {}
    found = []
    for table in pipeline.tables:
        planned = plan_table(catalog, pipeline, table)
        since, until = planned.since, planned.until
        moved = [name for name in table.inputs if planned.action != "nothing" and since[name] != until[name]]
        waits = [_seconds_since(known[name], since[name].snapshot_id, now) for name in moved]
        behind[table.table] = max((*waits, *(behind[name] for name in table.inputs if name in behind)), default=0.0)
        entry = planned.entry
        built_at = datetime.fromtimestamp(entry.built_at_us / 1_000_000, timezone.utc) if entry.build_id else None
        found.append(
            TableStatus(
                table=str(table.table),
                kind=table.kind,
                rows=_count_rows(known[table.table]),
                build_id=entry.build_id,
                last_build=built_at,
                behind_seconds=behind[table.table] if entry.build_id else None,
                expectations=len(entry.expectations),
                failing=tuple(each for each in entry.expectations if each.failed),
                watermark=_watermark(table, entry),
                late_rows=entry.rows_late if table.watermark else None,
            )
        )
    return tuple(found)


def _watermark(table: LayerTable, entry: BuildLedger) -> datetime | None:
    if table.watermark is None or entry.event_time_us is None:
        return None
    return datetime.fromtimestamp(entry.event_time_us / 1_000_000 - table.watermark.seconds, timezone.utc)


def commits_of(settings: Settings, pipeline: Pipeline, *, checkpoint_id: int | None) -> tuple[LoggedFile, ...]:
    """Gives back every file that the pipeline's commit logs name."""
    return tuple(
        file
        for stream, table, quarantine in _landed_streams(settings, pipeline)
        for file in list_commits(
            places_of(stream, settings).commit_log, table=table, quarantine=quarantine, checkpoint_id=checkpoint_id
        )
    )


def verify(settings: Settings, pipeline: Pipeline, *, bootstrap_servers: str) -> tuple[Verified, ...]:
    """Gives back each stream's lake held against its topic."""
    admin = admin_client(bootstrap_servers)
    return tuple(
        verify_stream(
            f"{pipeline.name}.{stream.name}",
            stream.topic,
            table=table,
            quarantine=quarantine,
            commit_log=places_of(stream, settings).commit_log,
            admin=admin,
            consumer={"bootstrap.servers": bootstrap_servers},
        )
        for stream, table, quarantine in _landed_streams(settings, pipeline)
    )


def _landed_streams(settings: Settings, pipeline: Pipeline) -> list[tuple[Stream, Table, Table]]:
    catalog = open_catalog(settings)
    quarantine = load_table(catalog, QUARANTINE)
    tables = [(stream, load_table(catalog, stream.table)) for stream in pipeline.streams]
    found = [(stream, table, quarantine) for stream, table in tables if table is not None and quarantine is not None]
    if not found:
        raise LandingError(
            "nothing has been landed yet",
            where=f"pipeline {pipeline.name}",
            next_step=f"Run: headrace land {pipeline.name} --once",
        )
    return found


def _status(label: str, stream: Stream, table: Table | None, bootstrap_servers: str | None) -> StreamStatus:
    ledger = read_ledger(table) if table else None
    snapshot = table.current_snapshot() if table else None
    offsets = ledger.offsets if ledger else {}
    return StreamStatus(
        label=label,
        topic=stream.topic,
        table=str(stream.table),
        rows=_count_rows(table),
        checkpoint_id=ledger.checkpoint_id if ledger else 0,
        quarantined=ledger.quarantined if ledger else 0,
        lag=_lag(stream, offsets, bootstrap_servers) if bootstrap_servers else None,
        last_commit=datetime.fromtimestamp(snapshot.timestamp_ms / 1000, timezone.utc) if snapshot else None,
        extras=ledger.extras if ledger else {},
        gaps=ledger.gaps if ledger else (),
    )


def _count_rows(table: Table | None) -> int:
    snapshot = table.current_snapshot() if table else None
    return int(snapshot.summary.additional_properties.get("total-records", 0)) if snapshot and snapshot.summary else 0


def _seconds_since(table: Table | None, read: int | None, now: datetime) -> float:
    """Gives back how long ago the first commit was that came after the snapshot which was read last."""
    snapshots = sorted(table.metadata.snapshots, key=lambda each: each.sequence_number or 0) if table else []
    last = next((index for index, each in enumerate(snapshots) if each.snapshot_id == read), None)
    later = snapshots[-1:] if last is None else snapshots[last + 1 :]
    return max(0.0, now.timestamp() - later[0].timestamp_ms / 1000) if later else 0.0


def _lag(stream: Stream, offsets: Mapping[int, int], bootstrap_servers: str) -> int:
    admin = admin_client(bootstrap_servers)
    partitions = list_partitions(admin).get(stream.topic, ())
    bounds = list_bounds(admin, [(stream.topic, partition) for partition in partitions])
    return sum(high - offsets.get(partition, low) for (_, partition), (low, high) in bounds.items())
