"""How the figures of a pipeline are read: from the tables' metadata and the topics' ends, without Spark."""

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
"""The oldest offset of each partition of a topic, and the one after its last."""


def read_bounds(admin: AdminClient, pipelines: Sequence[Pipeline]) -> Bounds:
    """Return how far the topics of these pipelines reach; those that don't exist have no partitions."""
    topics = {stream.topic for pipeline in pipelines for stream in pipeline.streams}
    found = list_partitions(admin)
    return list_bounds(admin, [(topic, partition) for topic in sorted(topics) for partition in found.get(topic, ())])


def read_now(
    settings: Settings, pipelines: Sequence[Pipeline], *, report: Callable[[str], None] = lambda sentence: None
) -> tuple[PipelineStatus, ...]:
    """Return the figures of these pipelines, asking the Kafka of these settings if it runs.

    Where it does not answer, that is reported, and the lag is not known.
    """
    servers = find_servers(settings)
    try:
        bounds = read_bounds(admin_client(servers), pipelines) if servers else None
    except UnavailableError as error:
        report(f"{servers}: {error.what}")
        bounds = None
    catalog, now = watch_catalog(settings), datetime.now(timezone.utc)
    dsn = find_postgres(settings)
    return tuple(read_figures(settings, each, catalog=catalog, bounds=bounds, dsn=dsn, now=now) for each in pipelines)


def read_figures(
    settings: Settings, pipeline: Pipeline, *, catalog: Catalog, bounds: Bounds | None, dsn: str | None, now: datetime
) -> PipelineStatus:
    """Return the figures of a pipeline, also of what nothing has landed in yet.

    `bounds` are None where Kafka is off, and `dsn` is where Postgres is.
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
    """Return the figures of each layer table, in the order in which they are built.

    `row_cache` is the folder of this machine's row store, by which the sizes of indexes are known.
    """
    cached = stored_sizes(row_cache) if row_cache else {}
    names = {name for table in pipeline.tables for name in (table.table, *table.inputs)}
    known = {name: load_table(catalog, name) for name in names}
    quarantined = count_quarantined(load_table(catalog, QUARANTINE))
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
        stored = _stored_size(known[table.table], cached)
        found.append(
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
                failing=tuple(each for each in entry.expectations if each.failed),
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
            )
        )
    return tuple(found)


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
    )


def messages_waiting(offset: int | None, bounds: tuple[int, int]) -> int:
    """Return the messages of a partition that have not landed; the ends may have been read before the last commit."""
    low, high = bounds
    return max(0, high - (low if offset is None else offset))


def _watermark(table: LayerTable, entry: BuildLedger) -> datetime | None:
    if table.watermark is None or entry.event_time_us is None:
        return None
    return datetime.fromtimestamp(entry.event_time_us / 1_000_000 - table.watermark.seconds, timezone.utc)


def _age(moment: datetime | None, now: datetime) -> float | None:
    return max(0.0, (now - moment).total_seconds()) if moment else None


def _summary(snapshot: Snapshot | None) -> Mapping[str, str]:
    return snapshot.summary.additional_properties if snapshot and snapshot.summary else {}


def _last_landed(table: Table) -> Snapshot | None:
    """Return the newest snapshot that a checkpoint made; maintenance makes others, which bring nothing."""
    landed = [each for each in table.metadata.snapshots if ledger.KEY in _summary(each)]
    return max(landed, key=lambda each: each.sequence_number or 0, default=table.current_snapshot())


def _rows_landed(summary: Mapping[str, str]) -> int:
    """Return the rows of a checkpoint; other snapshots, such as compaction's, bring none."""
    return int(summary.get("added-records", 0)) if ledger.KEY in summary else 0


def _rows_built(summary: Mapping[str, str]) -> int:
    """Return the rows that a build changed: its files hold others too, which it wrote again as they were."""
    return BuildLedger.from_json(summary[build_ledger.KEY]).rows_written if build_ledger.KEY in summary else 0


def _rate(table: Table | None, rows: Callable[[Mapping[str, str]], int], now: datetime) -> float:
    """Return rows per second of the last minute, or of as much of it as the table's history still tells."""
    snapshots = sorted(table.metadata.snapshots, key=lambda each: each.timestamp_ms) if table else []
    begin_ms = now.timestamp() * 1000 - RATE_SECONDS * 1000
    if snapshots and (snapshots[0].sequence_number or 1) > 1:
        begin_ms = max(begin_ms, snapshots[0].timestamp_ms)  # what came before it is no longer told
    seconds = max(1.0, now.timestamp() - begin_ms / 1000)
    return sum(rows(_summary(each)) for each in snapshots if each.timestamp_ms > begin_ms) / seconds


def _seconds_since(table: Table | None, read: int | None, now: datetime) -> float:
    """Return how long ago the first commit was that came after the snapshot which was read last."""
    snapshots = sorted(table.metadata.snapshots, key=lambda each: each.sequence_number or 0) if table else []
    last = next((index for index, each in enumerate(snapshots) if each.snapshot_id == read), None)
    later = snapshots[-1:] if last is None else snapshots[last + 1 :]
    return max(0.0, now.timestamp() - later[0].timestamp_ms / 1000) if later else 0.0
