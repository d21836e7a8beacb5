"""Maintain tables one by one, beside landing and builds. docs/decisions/0017-maintenance.md has the reasons.

1. Forget: delete rows of `metadata.removed_…` that all readers have passed.
2. Compact: rewrite small files, and files with deleted rows, sorted.
3. Manifests: merge many small manifests into few.
4. Expire: expire snapshots beyond their retention, unless a reader, a branch or a tag needs them.
5. Orphans: delete files that nothing has referred to for the grace period.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from datetime import datetime, timezone
from functools import partial
from itertools import groupby
from threading import Event
from typing import TYPE_CHECKING, Optional

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from headrace.build.readers import position_passed, snapshots_read
from headrace.build.removed import GENERATION, forget_read, forget_removed, removed_name
from headrace.build.watermarks import WATERMARKS
from headrace.errors import SpecError
from headrace.iceberg.catalog.spark import open_spark_catalog
from headrace.iceberg.catalog.tables import find_catalog, list_tables, load_table, open_catalog, table_location
from headrace.iceberg.files.in_flight import check_in_time
from headrace.iceberg.files.spark_files import load_java_table, plan_files
from headrace.iceberg.files.storage import Storage
from headrace.iceberg.ledgers import build as build_ledger
from headrace.iceberg.ledgers import landing as ledger
from headrace.iceberg.ledgers import replay as replay_ledger
from headrace.iceberg.ledgers.build import BuildLedger, read_build
from headrace.iceberg.ledgers.landing import Ledger, read_ledger
from headrace.iceberg.ledgers.replay import ReplayLedger
from headrace.iceberg.maintenance.compact import Compaction, compact_group, declared_order, partition_order
from headrace.iceberg.maintenance.expire import expire_snapshots, snapshots_of, snapshots_to_expire
from headrace.iceberg.maintenance.groups import Group, choose_groups, list_files
from headrace.iceberg.maintenance.manifests import has_many_manifests, rewrite_manifests
from headrace.iceberg.maintenance.orphans import Grace, Orphans, find_orphans, remove_orphans
from headrace.iceberg.maintenance.retention import record_retention
from headrace.iceberg.maintenance.size import TableSize, read_size
from headrace.iceberg.metadata.erasures import ERASURES
from headrace.iceberg.metadata.quarantine import QUARANTINE
from headrace.landing.commit_log import log_files
from headrace.landing.places import logged_elsewhere, places_of
from headrace.operations.erase.erasure_proof import folders_of
from headrace.quality.results import QUALITY_RESULTS
from headrace.sessions.lock import SHARED, maintain_lock
from headrace.sessions.retry_policy import RetryPolicy, retry
from headrace.settings import Settings
from headrace.spark.active_session import use_session
from headrace.spec.model.layers import BUILD_ID
from headrace.spec.model.pipeline import Pipeline, Stream, TableName
from headrace.spec.problems import suggest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MB = 1024 * 1024
_MINUTE_MS = 60_000
_DAY_MS = 1_440 * _MINUTE_MS
_TARGETS_AT_ONCE = 4
_SHARED: dict[TableName, tuple[str, ...]] = {
    QUARANTINE: ("stream", "partition", "offset"),
    QUALITY_RESULTS: ("pipeline_name", "table_name", "build_id"),
    WATERMARKS: ("pipeline_name",),
    ERASURES: ("erasure_id",),
}
"""The tables that all pipelines share, and their sort columns."""


@dataclass(frozen=True)
class Target:
    """A table to maintain: its folders, and its sort columns unless it declares an order itself.

    `stream` is the stream that lands in it; `removed_of` is the table whose removed rows it has. Its snapshots stay for
    `snapshots_for` seconds, or as long as the settings say.
    """

    name: TableName
    folders: tuple[str, ...]
    order: tuple[str, ...] = ()
    stream: Stream | None = None
    removed_of: TableName | None = None
    snapshots_for: float | None = None


Work = tuple[Optional[Pipeline], Target]
"""A table and its pipeline; None for a table that pipelines share."""


@dataclass(frozen=True)
class Maintained:
    """The result for a table. `gave_way` counts groups of files that a build or an erasure replaced first."""

    name: TableName
    before: TableSize
    after: TableSize
    orphans: Orphans = field(default_factory=Orphans)
    gave_way: int = 0
    seconds: float = 0.0

    @property
    def changed(self) -> bool:
        return self.before != self.after or bool(self.orphans.gone)


@dataclass(frozen=True)
class MaintenancePreview:
    """The preview of maintenance of a table."""

    name: TableName
    size: TableSize
    files_to_compact: int
    snapshots_to_expire: int
    rewrites_manifests: bool
    orphans: Orphans


@dataclass(frozen=True)
class MaintenanceContext:
    """The context of maintenance. `turn` is held for each step that would make a build repeat its work, and `most_bytes` limits
    the data of a compaction step, to keep the waits of builds short."""

    settings: Settings
    catalog: Catalog
    turn: Callable[[TableName], AbstractContextManager[object]] = nullcontext
    stop: Event = field(default_factory=Event)
    most_bytes: int | None = None

    @property
    def target_bytes(self) -> int:
        return self.settings.maintain_target_file_mb * _MB

    @property
    def grace(self) -> Grace:
        return Grace(self.settings.maintain_grace_minutes * 60.0, time.time())

    def expire_before_ms(self, target: Target) -> int:
        """Return the time before which snapshots expire: at least the grace period ago, for readers that have just started."""
        declared = target.snapshots_for
        kept_ms = self.settings.maintain_keep_days * _DAY_MS if declared is None else int(declared * 1000)
        return time.time_ns() // 1_000_000 - max(kept_ms, self.settings.maintain_grace_minutes * _MINUTE_MS)

    def groups(self, table: Table) -> tuple[Group, ...]:
        most = self.most_bytes or _TARGETS_AT_ONCE * self.target_bytes
        return choose_groups(list_files(table), target_bytes=self.target_bytes, most_bytes=most)


def targets_of(settings: Settings, pipeline: Pipeline) -> tuple[Target, ...]:
    """Return the tables of a pipeline, then its metadata tables: what those may lose depends on how far back the tables can be
    rolled back."""
    folders = folders_of(settings, pipeline)
    targets = []
    for stream in pipeline.streams:
        times = [partition.column for partition in stream.partition_by]
        order = tuple(dict.fromkeys((*times, "kafka_topic", "kafka_partition", "kafka_offset")))
        targets.append(Target(stream.table, folders[stream.table], order, stream, snapshots_for=stream.snapshots_for))
    for table in pipeline.tables:
        order = tuple(dict.fromkeys((*table.keys, *table.sequence_by)))
        targets.append(Target(table.table, folders[table.table], order, snapshots_for=table.snapshots_for))
    for table in pipeline.tables:
        removed = removed_name(table.table)
        targets.append(Target(removed, folders[removed], (GENERATION, BUILD_ID), removed_of=table.table))
    return tuple(targets)


def shared_targets(settings: Settings) -> tuple[Target, ...]:
    """Return the tables that pipelines share."""
    return tuple(Target(name, (table_location(settings, name),), order) for name, order in _SHARED.items())


def list_work(settings: Settings, pipelines: Sequence[Pipeline], *, table: str | None = None) -> tuple[Work, ...]:
    """Return the tables of these pipelines and the shared ones, existing or not, or only the named table."""
    work: list[Work] = [(pipeline, target) for pipeline in pipelines for target in targets_of(settings, pipeline)]
    work += [(None, target) for target in shared_targets(settings)]
    if table is None:
        return tuple(work)
    matches = [(owner, target) for owner, target in work if table in (str(target.name), target.name.name)]
    if not matches:
        hint = suggest(table, [str(target.name) for _, target in work if target.removed_of is None], plural="Tables")
        raise SpecError(f'not found: table "{table}"', where="--table", next_step=hint)
    return tuple((owner, target) for owner, target in matches if str(target.name) == table) or tuple(matches)


def list_existing(settings: Settings, work: Sequence[Work], *, retry_policy: RetryPolicy | None = None) -> tuple[Work, ...]:
    """Return the tables that exist. Retries during an outage of the catalog with `retry_policy`."""

    def list_now() -> tuple[Work, ...]:
        catalog = find_catalog(settings)
        return tuple((owner, target) for owner, target in work if load_table(catalog, target.name) is not None)

    return retry(list_now, retry_policy)


def preview_all(settings: Settings, work: Sequence[Work]) -> tuple[MaintenancePreview, ...]:
    """Return the preview of maintenance of each existing table."""
    context = MaintenanceContext(settings, find_catalog(settings))
    previews = (preview_table(context, owner, target) for owner, target in work)
    return tuple(preview for preview in previews if preview)


def maintain_all(
    settings: Settings, spark: SparkSession, work: Sequence[Work], *, retry_policy: RetryPolicy | None = None
) -> tuple[Maintained, ...]:
    """Maintain each existing table, and return the results.

    During an outage of the catalog or the object store, retries the current table with `retry_policy`.
    """
    context = MaintenanceContext(settings, retry(lambda: open_catalog(settings), retry_policy))
    session = open_spark_catalog(spark, settings)
    results = []
    for owner, parts in groupby(work, key=lambda item: item[0]):
        with maintaining(settings, owner):
            for _, target in parts:
                results.append(retry(partial(maintain_table, context, session, owner, target), retry_policy))
    return tuple(result for result in results if result)


@contextmanager
def maintaining(settings: Settings, pipeline: Pipeline | None, *, wait_seconds: float = 60.0) -> Iterator[None]:
    """Lock out erasures and other maintenance of a pipeline's tables, or of the shared tables."""
    with maintain_lock(settings, pipeline.name if pipeline else SHARED, wait_seconds=wait_seconds):
        yield


def preview_table(context: MaintenanceContext, pipeline: Pipeline | None, target: Target) -> MaintenancePreview | None:
    """Return the preview of maintenance of a table, from metadata only; None if the table does not exist."""
    table = load_table(context.catalog, target.name)
    if table is None:
        return None
    protected = {*snapshots_of(table), *_readers(context, pipeline, target)}
    expired = snapshots_to_expire(table.metadata.snapshots, protected=protected, before_ms=context.expire_before_ms(target))
    named = _named_files(context, target)
    logged = _logged_elsewhere(context, target)
    orphans, _ = find_orphans(
        context.catalog, target.name, folders=target.folders, named=named, grace=context.grace, logged=logged
    )
    return MaintenancePreview(
        target.name,
        read_size(table),
        sum(len(group.files) for group in context.groups(table)),
        len(expired),
        has_many_manifests(table),
        orphans,
    )


def maintain_table(
    context: MaintenanceContext, spark: SparkSession, pipeline: Pipeline | None, target: Target
) -> Maintained | None:
    """Maintain a table, and return the result; None if the table does not exist. Idempotent."""
    started = time.monotonic()
    table = load_table(context.catalog, target.name)
    if table is None:
        return None
    use_session(spark)
    spark.sparkContext.setLocalProperty("spark.scheduler.pool", "maintenance")
    before = read_size(table)
    if target.removed_of and pipeline:
        _forget_passed(context, pipeline, target.removed_of)
    gave_way = _compact(context, spark, target)
    if has_many_manifests(context.catalog.load_table(str(target.name))) and not context.stop.is_set():
        with context.turn(target.removed_of or target.name):
            rewrite_manifests(spark, target.name)
    readers = _readers(context, pipeline, target)
    record_retention(context.catalog, target.name, target.snapshots_for)
    expire_snapshots(context.catalog, target.name, readers=readers, before_ms=context.expire_before_ms(target))
    named = _named_files(context, target)
    logged = _logged_elsewhere(context, target)
    orphans = remove_orphans(
        context.catalog, target.name, folders=target.folders, named=named, grace=context.grace, logged=logged
    )
    after = read_size(context.catalog.load_table(str(target.name)))
    return Maintained(target.name, before, after, orphans, gave_way, time.monotonic() - started)


def _compact(context: MaintenanceContext, spark: SparkSession, target: Target) -> int:
    """Compact the table. Return the number of file groups that other commits replaced first."""
    table = context.catalog.load_table(str(target.name))
    current, groups = table.current_snapshot(), context.groups(table)
    if current is None or not groups:
        return 0
    planned = plan_files(load_java_table(spark, target.name), snapshot_id=current.snapshot_id)
    names = declared_order(table) or target.order
    columns = [f"`{name}`" for name in names if name in table.schema().column_names]
    order = tuple(dict.fromkeys((*partition_order(table), *columns)))
    gave_way = 0
    for group in groups:
        if context.stop.is_set():
            break
        with context.turn(target.removed_of or target.name):
            how = Compaction(order, context.target_bytes, _before_commit(context, target, began=time.time()))
            gave_way += not compact_group(spark, target.name, group, planned, at=current, how=how)
    return gave_way


def _before_commit(context: MaintenanceContext, target: Target, *, began: float) -> Callable[[Sequence[str]], None]:
    """Return the callback before a commit of new files. It checks their age, and logs files of a raw table."""

    def log(paths: Sequence[str]) -> None:
        if target.stream is not None:
            log_files(
                places_of(target.stream, context.settings).commit_log,
                checkpoint_id=read_ledger(context.catalog.load_table(str(target.name))).checkpoint_id,
                subtask=0,
                batch=str(uuid.uuid4()),
                paths=paths,
                now=datetime.now(timezone.utc),
                storage=Storage.of(context.catalog.properties),
            )
        check_in_time(context.settings, began=began, where=str(target.name))

    return log


def _forget_passed(context: MaintenanceContext, pipeline: Pipeline, name: TableName) -> None:
    """Delete removed rows that all readers have passed. Deletion events stay, because older events may arrive late."""
    generation = read_build(load_table(context.catalog, name)).generation
    with context.turn(name):
        forget_removed(context.catalog, name, generation=generation)
        passed = position_passed(context.catalog, pipeline, name)
        forget_read(context.catalog, name, generation=generation, position=passed)


def _readers(context: MaintenanceContext, pipeline: Pipeline | None, target: Target) -> frozenset[int]:
    return snapshots_read(context.catalog, pipeline, target.name) if pipeline else frozenset()


def _logged_elsewhere(context: MaintenanceContext, target: Target) -> frozenset[str]:
    if target.stream is None:
        return frozenset()
    return logged_elsewhere(target.stream, context.catalog.load_table(str(target.name)), context.settings)


def _named_files(context: MaintenanceContext, target: Target) -> frozenset[str]:
    """Return the quarantine files that a table's entry names. They may not be committed to the quarantine yet."""
    if target.name != QUARANTINE:
        return frozenset()
    paths: set[str] = set()
    for name in list_tables(context.catalog):
        properties = context.catalog.load_table(name).properties
        if ledger.KEY in properties:
            paths |= {*Ledger.from_json(properties[ledger.KEY]).quarantine_files}
        if build_ledger.KEY in properties:
            paths |= {*BuildLedger.from_json(properties[build_ledger.KEY]).quarantine_files}
        if replay_ledger.KEY in properties:
            settlement = ReplayLedger.from_json(properties[replay_ledger.KEY]).settlement
            paths |= {*settlement.files} if settlement else set()
    return frozenset(paths)
