"""Append rejected rows to `metadata.quarantine` exactly once, although they are in another table than the valid rows.

The commit of the valid rows' table is authoritative: its ledger entry names the files of the rejected rows. They are appended
to the quarantine right after that commit. If the application crashes in between, the next run appends them first.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow.parquet as pq
from pyiceberg.catalog import Catalog
from pyiceberg.expressions import And
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table
from pyiceberg.typedef import Record

from headrace.iceberg.catalog.tables import ensure_table, table_location
from headrace.iceberg.commits.append import append_once
from headrace.iceberg.files.file_counts import FileCounts
from headrace.iceberg.files.metrics import FileMetrics
from headrace.iceberg.files.storage import Storage, open_input
from headrace.iceberg.ledgers.landing import Ledger
from headrace.iceberg.rows.filters import column_between, column_is
from headrace.settings import Settings
from headrace.spec.model.pipeline import TableName
from headrace.spec.model.types import Column, Primitive

QUARANTINE = TableName("metadata", "quarantine")
QUARANTINE_COLUMNS = (
    Column("stream", Primitive("string")),
    Column("topic", Primitive("string")),
    Column("partition", Primitive("int")),
    Column("offset", Primitive("long")),
    Column("timestamp", Primitive("timestamp")),
    Column("reason", Primitive("string")),
    Column("original_bytes", Primitive("binary")),
    Column("checkpoint_id", Primitive("long")),
)

REASONS = "; "
"""The separator between the reasons of a row that failed several expectations."""
_LARGEST = 2**63 - 1
_PREFIX = "headrace.quarantine."
_COUNTS = FileCounts("stream", lambda label: (label,))


class Refusal(Protocol):
    """The part of a ledger entry that names the files of rejected rows, and the offsets that they cover."""

    @property
    def checkpoint_id(self) -> int: ...

    @property
    def offsets(self) -> Mapping[int, int]: ...

    @property
    def quarantine_files(self) -> tuple[str, ...]: ...


@dataclass(frozen=True)
class Refused:
    """Rows that a build rejected; `checkpoint_id` is the build's id."""

    checkpoint_id: int
    quarantine_files: tuple[str, ...]
    offsets: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Settled:
    """The checkpoint and offsets up to which a stream's rejected rows are in the quarantine."""

    checkpoint_id: int
    offsets: Mapping[int, int]


def open_quarantine(catalog: Catalog, settings: Settings) -> Table:
    """Return the quarantine; create it if it does not exist."""
    return ensure_table(catalog, QUARANTINE, columns=QUARANTINE_COLUMNS, location=table_location(settings, QUARANTINE))


def read_settled(quarantine: Table, label: str) -> Settled:
    text = quarantine.properties.get(_PREFIX + label)
    if text is None:
        return Settled(0, {})
    entry = json.loads(text)
    return Settled(entry["checkpoint_id"], {int(key): value for key, value in entry["offsets"].items()})


def read_refused_before(quarantine: Table, label: str, ledger: Ledger) -> frozenset[tuple[int, int]]:
    """Return the partitions and offsets that a stream will land again and whose rows are already in the quarantine.

    The result is empty unless the stream's table was rolled back or restored. Rows are matched one by one: a message below the
    known offsets may still be rejected for the first time.
    """
    settled = read_settled(quarantine, label)
    if settled.checkpoint_id < ledger.first_checkpoint:
        return frozenset()  # the quarantine has nothing of this topic
    is_behind = any(settled.offsets.get(partition, 0) > offset for partition, offset in ledger.offsets.items())
    if not ledger.rollbacks and not is_behind:
        return frozenset()
    least = min(ledger.offsets.values(), default=0)
    of_stream = And(column_is("stream", label), column_between("offset", least, _LARGEST))
    of_topic = And(of_stream, column_between("checkpoint_id", ledger.first_checkpoint, _LARGEST))
    rows = quarantine.scan(row_filter=of_topic, selected_fields=("partition", "offset")).to_arrow()
    return frozenset(zip(rows["partition"].to_pylist(), rows["offset"].to_pylist(), strict=True))


def flush_quarantine(
    catalog: Catalog,
    quarantine: Table,
    ledgers: Mapping[str, Refusal],
    *,
    known: Mapping[str, DataFile] | None = None,
) -> Table:
    """Append all files that the ledgers (by stream) name to the quarantine in one snapshot, and return the table.

    Idempotent by stream and checkpoint, also if another application flushes some of them concurrently. `known` are the manifest
    entries of files by path, which saves reading their footers.
    """
    open_ledgers = {label: ledger for label, ledger in ledgers.items() if not _is_settled(quarantine, label, ledger)}
    if not open_ledgers:
        return quarantine
    files = [
        (known or {}).get(path) or _describe(quarantine, path)
        for ledger in open_ledgers.values()
        for path in ledger.quarantine_files
    ]
    entries = {_PREFIX + label: _entry(ledger) for label, ledger in open_ledgers.items()}
    appended = append_once(
        catalog,
        quarantine,
        files=files,
        entry=lambda snapshot_id, sequence: entries,
        is_committed=lambda table: any(_is_settled(table, label, ledger) for label, ledger in open_ledgers.items()),
    )
    return flush_quarantine(catalog, appended, open_ledgers, known=known)


def _is_settled(quarantine: Table, label: str, ledger: Refusal) -> bool:
    return not ledger.quarantine_files or read_settled(quarantine, label).checkpoint_id >= ledger.checkpoint_id


def _entry(ledger: Refusal) -> str:
    offsets = {str(partition): offset for partition, offset in sorted(ledger.offsets.items())}
    return json.dumps({"checkpoint_id": ledger.checkpoint_id, "offsets": offsets}, separators=(",", ":"))


def _describe(quarantine: Table, path: str) -> DataFile:
    with open_input(path, storage=Storage.of(quarantine.io.properties)) as stream:
        metadata, size = pq.read_metadata(stream), stream.size()
    metrics = FileMetrics(quarantine.schema(), quarantine.spec())
    return metrics.describe(metadata, uri=path, size=size, partition=Record())


def count_quarantined(quarantine: Table | None) -> Mapping[str, int]:
    """Return the number of rows in the quarantine by stream or layer table, the only source of this figure."""
    return _COUNTS.total(quarantine)


def count_quarantined_for(quarantine: Table | None, label: str, reasons: Iterable[str]) -> Mapping[str, int]:
    """Return the number of a layer table's rows in the quarantine by reason. A row may have several reasons."""
    if quarantine is None or not count_quarantined(quarantine).get(label):
        return {}
    rows = quarantine.scan(row_filter=column_is("stream", label), selected_fields=("reason",)).to_arrow()
    recorded = [f"{REASONS}{reason}{REASONS}" for reason in rows["reason"].to_pylist()]
    return {reason: sum(f"{REASONS}{reason}{REASONS}" in text for text in recorded) for reason in reasons}


def paths_of(files: Sequence[DataFile]) -> tuple[str, ...]:
    return tuple(file.file_path for file in files)
