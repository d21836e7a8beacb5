"""Read the figures of a pipeline from table metadata and topic offsets, without Spark."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path

from confluent_kafka.admin import AdminClient
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from headrace.build.plan import plan_table
from headrace.errors import UnavailableError
from headrace.iceberg.catalog.tables import count_rows, load_table
from headrace.iceberg.catalog.watched import watch_catalog
from headrace.iceberg.ledgers import build as build_ledger
from headrace.iceberg.ledgers import landing as ledger
from headrace.iceberg.ledgers.build import BuildLedger
from headrace.iceberg.metadata.quarantine import QUARANTINE, count_quarantined
from headrace.iceberg.rows.row_store_size import StoredSize, stored_sizes
from headrace.iceberg.snapshots.history import oldest_snapshot
from headrace.kafka.topics import admin_client, list_bounds, list_partitions
from headrace.landing.extra_counts import count_extras
from headrace.servers.kafka import find_servers
from headrace.servers.postgres import find_postgres
from headrace.serving.figures import RATE_SECONDS, PipelineStatus, StreamStatus, TableStatus
from headrace.serving.publish.published import read_published
from headrace.sessions.lock import is_running
from headrace.settings import Settings
from headrace.spec.model.layers import LayerTable
from headrace.spec.model.pipeline import Pipeline, Stream, TableName

Bounds = Mapping[tuple[str, int], tuple[int, int]]
"""The oldest offset of each topic's partition, and the offset after its last message."""


def read_bounds(admin: AdminClient, pipelines: Sequence[Pipeline]) -> Bounds:
    """Return the bounds of these pipelines' topics; a topic that does not exist has no partitions."""
    topics = {stream.topic for pipeline in pipelines for stream in pipeline.streams}
    partitions = list_partitions(admin)
    return list_bounds(admin, [(topic, partition) for topic in sorted(topics) for partition in partitions.get(topic, ())])


def read_now(
    settings: Settings, pipelines: Sequence[Pipeline], *, report: Callable[[str], None] = lambda sentence: None
) -> tuple[PipelineStatus, ...]:
    """Return the figures of these pipelines, with the lag if Kafka runs.

    If Kafka does not answer, reports that and leaves the lag unknown.
    """
    servers = find_servers(settings)
    try:
        bounds = read_bounds(admin_client(servers), pipelines) if servers else None
    except UnavailableError as error:
        report(f"{servers}: {error.what}")
        bounds = None
    catalog, now = watch_catalog(settings), datetime.now(timezone.utc)
    dsn = find_postgres(settings)
    return tuple(read_figures(settings, pipeline, catalog=catalog, bounds=bounds, dsn=dsn, now=now) for pipeline in pipelines)


def read_figures(
    settings: Settings, pipeline: Pipeline, *, catalog: Catalog, bounds: Bounds | None, dsn: str | None, now: datetime
) -> PipelineStatus:
    """Return the figures of a pipeline, including streams and tables without data.

    `bounds` is None if Kafka is not running, `dsn` if Postgres is not.
    """
    return PipelineStatus(
        name=pipeline.name,
        running=is_running(settings, pipeline.name),
        at=now,
        streams=list_streams(catalog, pipeline, bounds=bounds, now=now),
        tables=list_layer_tables(catalog, pipeline, now=now, row_cache=settings.row_cache),
        published=read_published(dsn, pipeline.serving.postgres, catalog=catalog, now=now),
    )


def list_streams(catalog: Catalog, pipeline: Pipeline, *, bounds: Bounds | None, now: datetime) -> tuple[StreamStatus, ...]:
    """Return the figures of each stream."""
    quarantined = count_quarantined(load_table(catalog, QUARANTINE))
    return tuple(
        _stream_status(pipeline, stream, load_table(catalog, stream.table), quarantined, bounds, now)
        for stream in pipeline.streams
    )


def list_layer_tables(
    catalog: Catalog, pipeline: Pipeline, *, now: datetime, row_cache: Path | None = None
) -> tuple[TableStatus, ...]:
    """Return the figures of each layer table, in build order.

    `row_cache` is the folder of this machine's row store, which has the sizes of the indexes.
    """
    cached = stored_sizes(row_cache) if row_cache else {}
    names = {name for table in pipeline.tables for name in (table.table, *table.inputs)}
    known = {name: load_table(catalog, name) for name in names}
    quarantined = count_quarantined(load_table(catalog, QUARANTINE))
    behind: dict[TableName, float] = {}
    statuses = []
    for table in pipeline.tables:
        planned = plan_table(catalog, pipeline, table)
        since, until = planned.since, planned.until
        moved = [name for name in table.inputs if planned.action != "nothing" and since[name] != until[name]]
        waits = [_seconds_since(known[name], since[name].snapshot_id, now) for name in moved]
        behind[table.table] = max((*waits, *(behind[name] for name in table.inputs if name in behind)), default=0.0)
        entry = planned.entry
        built_at = datetime.fromtimestamp(entry.built_at_us / 1_000_000, timezone.utc) if entry.build_id else None
        stored = _stored_size(known[table.table], cached)
        statuses.append(
            TableStatus(
                table=str(table.table),
                kind=table.kind,
                rows=count_rows(known[table.table]),
                rate=_rate(known[table.table], _rows_built, now),
                build_id=entry.build_id,
                last_build=built_at,
                freshness_seconds=_age(built_at, now),
                batch_seconds=entry.seconds or None,
                behind_seconds=behind[table.table] if entry.build_id else None,
                quarantined=quarantined.get(str(table.table), 0),
                expectations=len(entry.expectations),
                failing=tuple(expectation for expectation in entry.expectations if expectation.failed),
                watermark=_watermark(table, entry),
                late_rows=entry.rows_late if table.watermark else None,
                unknown_rows=entry.rows_unknown if table.unchanged else None,
                largest_entity=entry.largest_entity if table.kind == "entities" else None,
                largest_expected=table.largest_entity if table.kind == "entities" else None,
                weights=entry.weights if table.fuzzy and table.fuzzy.train else None,
                phases=entry.phases,
                rows_in=entry.rows_processed if entry.build_id else None,
                rows_out=entry.rows_written if entry.build_id else None,
                index_bytes=stored.indexes if row_cache else None,
                cached_row_bytes=stored.rows if row_cache else None,
                readable_since=_readable_since(known[table.table]),
                snapshots=_count_snapshots(known[table.table]),
            )
        )
    return tuple(statuses)


def _stored_size(table: Table | None, cached: Mapping[str, StoredSize]) -> StoredSize:
    return cached.get(table.metadata.table_uuid.hex, StoredSize()) if table else StoredSize()


def _stream_status(
    pipeline: Pipeline,
    stream: Stream,
    table: Table | None,
    quarantined: Mapping[str, int],
    bounds: Bounds | None,
    now: datetime,
) -> StreamStatus:
    entry = ledger.read_ledger(table) if table else ledger.Ledger()
    snapshot = _last_landed(table) if table else None
    committed = datetime.fromtimestamp(snapshot.timestamp_ms / 1000, timezone.utc) if snapshot else None
    own = [(partition, at) for (topic, partition), at in (bounds or {}).items() if topic == stream.topic]
    return StreamStatus(
        label=f"{pipeline.name}.{stream.name}",
        topic=stream.topic,
        table=str(stream.table),
        rows=count_rows(table),
        rate=_rate(table, _rows_landed, now),
        checkpoint_id=entry.checkpoint_id,
        quarantined=quarantined.get(f"{pipeline.name}.{stream.name}", 0),
        lag=None if bounds is None else sum(messages_waiting(entry.offsets.get(partition), at) for partition, at in own),
        messages=None if bounds is None else sum(high - low for _, (low, high) in own),
        last_commit=committed,
        freshness_seconds=_age(committed, now),
        batch_seconds=entry.seconds or None,
        extras=count_extras(table),
        gaps=entry.gaps,
        readable_since=_readable_since(table),
        snapshots=_count_snapshots(table),
    )


def messages_waiting(offset: int | None, bounds: tuple[int, int]) -> int:
    """Return the number of a partition's messages that have not landed; 0 if `bounds` is older than the last commit."""
    low, high = bounds
    return max(0, high - (low if offset is None else offset))


def _watermark(table: LayerTable, entry: BuildLedger) -> datetime | None:
    if table.watermark is None or entry.event_time_us is None:
        return None
    return datetime.fromtimestamp(entry.event_time_us / 1_000_000 - table.watermark.seconds, timezone.utc)


def _readable_since(table: Table | None) -> datetime | None:
    oldest = oldest_snapshot(table) if table else None
    return datetime.fromtimestamp(oldest.timestamp_ms / 1000, timezone.utc) if oldest else None


def _count_snapshots(table: Table | None) -> int:
    return len(table.metadata.snapshots) if table else 0


def _age(moment: datetime | None, now: datetime) -> float | None:
    return max(0.0, (now - moment).total_seconds()) if moment else None


def _summary(snapshot: Snapshot | None) -> Mapping[str, str]:
    return snapshot.summary.additional_properties if snapshot and snapshot.summary else {}


def _last_landed(table: Table) -> Snapshot | None:
    """Return the newest snapshot of a checkpoint; snapshots of maintenance add no rows."""
    landed = [snapshot for snapshot in table.metadata.snapshots if ledger.KEY in _summary(snapshot)]
    return max(landed, key=lambda snapshot: snapshot.sequence_number or 0, default=table.current_snapshot())


def _rows_landed(summary: Mapping[str, str]) -> int:
    """Return the rows that a checkpoint added; 0 for other snapshots, such as compaction's."""
    return int(summary.get("added-records", 0)) if ledger.KEY in summary else 0


def _rows_built(summary: Mapping[str, str]) -> int:
    """Return the rows that a build changed, without the unchanged rows of the files that it rewrote."""
    return BuildLedger.from_json(summary[build_ledger.KEY]).rows_written if build_ledger.KEY in summary else 0


def _rate(table: Table | None, rows: Callable[[Mapping[str, str]], int], now: datetime) -> float:
    """Return rows per second of the last minute, or of the part of it that the table's snapshots still cover."""
    snapshots = sorted(table.metadata.snapshots, key=lambda snapshot: snapshot.timestamp_ms) if table else []
    begin_ms = now.timestamp() * 1000 - RATE_SECONDS * 1000
    if snapshots and (snapshots[0].sequence_number or 1) > 1:
        begin_ms = max(begin_ms, snapshots[0].timestamp_ms)  # older snapshots have expired
    seconds = max(1.0, now.timestamp() - begin_ms / 1000)
    return sum(rows(_summary(snapshot)) for snapshot in snapshots if snapshot.timestamp_ms > begin_ms) / seconds


def _seconds_since(table: Table | None, read: int | None, now: datetime) -> float:
    """Return the age of the first commit after snapshot `read`; 0 if there is none."""
    snapshots = sorted(table.metadata.snapshots, key=lambda snapshot: snapshot.sequence_number or 0) if table else []
    last = next((index for index, snapshot in enumerate(snapshots) if snapshot.snapshot_id == read), None)
    later = snapshots[-1:] if last is None else snapshots[last + 1 :]
    return max(0.0, now.timestamp() - later[0].timestamp_ms / 1000) if later else 0.0
