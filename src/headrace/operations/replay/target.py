"""The target of a replay: a stream, its raw table and the quarantine as of the replay's plan."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog import Catalog
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

from headrace.iceberg.catalog.tables import ensure_table, load_table
from headrace.iceberg.files.storage import Storage, delete_file, list_all
from headrace.iceberg.ledgers.landing import Ledger, read_ledger
from headrace.iceberg.ledgers.replay import ReplayLedger, Settlement, Window, read_replay
from headrace.iceberg.metadata.quarantine import flush_quarantine, open_quarantine
from headrace.iceberg.metadata.quarantine_replay import flush_replayed, read_refused
from headrace.landing.growth import grow_table
from headrace.landing.places import Places, places_of
from headrace.settings import Settings
from headrace.spec.model.columns import landed_columns
from headrace.spec.model.pipeline import Pipeline, Stream
from headrace.spec.model.types import Column

Coordinates = tuple[int, int]
"""The partition and offset of a message."""


@dataclass(frozen=True)
class Target:
    """One stream. `quarantined` are its rows in the quarantine, up to the ledger's checkpoint and within the window."""

    replay_id: str
    stream: Stream
    label: str
    table: Table
    quarantine: Table
    places: Places
    ledger: Ledger
    replay: ReplayLedger
    window: Window
    quarantined: pa.Table

    @property
    def scratch(self) -> str:
        """The folder of the files that were read again, until the replay is done."""
        return f"{self.places.table}/replay/{self.replay_id}"

    def quarantined_rows(self) -> pa.Table:
        """Return the quarantined rows before the landed offsets. Landing itself will read the others again."""
        ends = self.ledger.offsets
        places = zip(self.quarantined["partition"].to_pylist(), self.quarantined["offset"].to_pylist(), strict=True)
        return self.quarantined.filter(pa.array([offset < ends.get(partition, 0) for partition, offset in places], pa.bool_()))


@dataclass(frozen=True)
class Staged:
    """Messages that were read again: the files of good rows with their row counts, and the bad rows."""

    files: Mapping[str, int]
    bad: pa.Table

    @property
    def read(self) -> int:
        return sum(self.files.values()) + int(self.bad.num_rows)


def plan_target(catalog: Catalog, settings: Settings, pipeline: Pipeline, stream: Stream, *, window: Window) -> Target | None:
    """Return the target of a stream, or None if nothing was landed.

    Flushes pending changes of the quarantine, and adds the schema's new columns to the table, as landing does at its start.
    """
    table, places = load_table(catalog, stream.table), places_of(stream, settings)
    if table is None or table.current_snapshot() is None:
        return None
    table = ensure_table(catalog, stream.table, columns=landed_columns(stream), location=places.table)
    label = f"{pipeline.name}.{stream.name}"
    ledger, replayed = read_ledger(table), read_replay(table)
    quarantine = flush_quarantine(catalog, open_quarantine(catalog, settings), {label: ledger})
    quarantine = flush_replayed(catalog, quarantine, label, replayed)
    quarantined = read_refused(
        quarantine, label, Settlement(ledger.checkpoint_id, window, first_checkpoint=ledger.first_checkpoint)
    )
    return Target(str(uuid.uuid4()), stream, label, table, quarantine, places, ledger, replayed, window, quarantined)


def grow_target(catalog: Catalog, target: Target, columns: Sequence[tuple[Column, ...]]) -> Target:
    """Return the target with its table grown by these columns."""
    table, _ = grow_table(catalog, target.table, columns)
    return replace(target, table=table)


def read_staged(target: Target, *, good: Sequence[DataFile], bad: Sequence[DataFile]) -> Staged:
    """Return the content of the files that were written for a replay."""
    schema = target.quarantined.schema
    parts = [_read(target, file.file_path).cast(schema) for file in bad]
    files = {file.file_path: int(file.record_count) for file in good}
    return Staged(files, pa.concat_tables([schema.empty_table(), *parts]))


def remove_scratch(target: Target) -> None:
    """Delete the files that were read again. Idempotent."""
    storage = Storage.of(target.table.io.properties)
    for file in list_all(target.scratch, storage=storage):
        delete_file(file.uri, storage=storage)


def coordinates(rows: pa.Table) -> list[Coordinates]:
    """Return the partition and offset of rows of the quarantine."""
    return list(zip(rows["partition"].to_pylist(), rows["offset"].to_pylist(), strict=True))


def in_window(moment: datetime | None, window: Window) -> bool:
    """Return whether a Kafka timestamp is in a window. No timestamp is only in a window without bounds."""
    if moment is None:
        return window == Window()
    return (window.since is None or moment >= window.since) and (window.until is None or moment < window.until)


def _read(target: Target, path: str) -> pa.Table:
    with target.table.io.new_input(path).open() as stream:
        return pq.read_table(stream)
