"""A table that small builds change, with a plain model of its rows."""

from __future__ import annotations

import random
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog import Catalog
from pyiceberg.manifest import DataFile, ManifestContent
from pyiceberg.table import FileScanTask, Table

from headrace.iceberg.catalog.tables import count_rows, ensure_table
from headrace.iceberg.commits.row_delta import RowDelta
from headrace.iceberg.commits.small_build_commit import commit_small_build
from headrace.iceberg.deletes.position_deletes import own_deletes, stage_position_deletes
from headrace.iceberg.files.staged_rows import stage_rows
from headrace.iceberg.ledgers.build import BuildLedger, read_build
from headrace.iceberg.rows.duck import quote_text
from headrace.spec import Column, Primitive, TableName
from headrace.spec.model.pipeline import Transform

START = datetime(2026, 1, 1, tzinfo=timezone.utc)
NAME = TableName("built", "orders")

Row = tuple[int, datetime | None, str | None]


def create_table(catalog: Catalog, location: str, *, by_day: bool, **properties: str) -> Table:
    """Return an empty table of orders, partitioned by day if wanted."""
    columns = (
        Column("id", Primitive("long"), required=True),
        Column("at", Primitive("timestamp")),
        Column("note", Primitive("string")),
    )
    by = (Transform("days", "at"),) if by_day else ()
    return ensure_table(catalog, NAME, columns=columns, partition_by=by, location=location, properties=properties)


def as_arrow(rows: Sequence[Row]) -> pa.Table:
    ids, times, notes = zip(*rows, strict=True)
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "at": pa.array(times, pa.timestamp("us", "UTC")),
            "note": pa.array(notes, pa.string()),
        }
    )


def as_rows(table: pa.Table) -> list[Row]:
    return sorted((row["id"], row["at"] and row["at"].astimezone(timezone.utc), row["note"]) for row in table.to_pylist())


def tasks_of(table: Table) -> list[FileScanTask]:
    return sorted(table.scan().plan_files(), key=lambda task: task.file.file_path)


def next_entry(planned: BuildLedger) -> BuildLedger:
    return replace(planned, build_id=planned.build_id + 1, changed_in=planned.build_id + 1, writer=str(uuid.uuid4()))


def commit(catalog: Catalog, delta: RowDelta) -> BuildLedger:
    """Commit a delta as the next build of the table."""
    planned = read_build(catalog.load_table(str(NAME)))
    return commit_small_build(catalog, NAME, delta=delta, planned=planned, new=next_entry(planned))


def delete_positions(table: Table, task: FileScanTask, positions: Sequence[int], added: Sequence[DataFile] = ()) -> RowDelta:
    """Return the delta that deletes these positions of one data file."""
    staged = stage_position_deletes(table, [(task, pa.array(positions, pa.int64()))])
    return RowDelta(
        added=added,
        deletes=[deletes for _, deletes in staged.files],
        outdated=staged.outdated,
        snapshot_id=table.metadata.current_snapshot_id,
    )


@dataclass
class DeltaTable:
    """Random changes of the table; `rows` are what it must hold, by id."""

    catalog: Catalog
    chance: random.Random
    rows: dict[int, Row] = field(default_factory=dict)
    next_id: int = 0

    @property
    def table(self) -> Table:
        return self.catalog.load_table(str(NAME))

    def change(self) -> None:
        """Commit a random delta: new rows, deleted positions and removed files, each or together."""
        table, chance = self.table, self.chance
        tasks = tasks_of(table)
        kinds = chance.choice([("add",), ("delete",), ("add", "delete"), ("add", "delete"), ("remove", "add", "delete")])
        chosen = chance.sample(tasks, min(len(tasks), chance.randint(1, 4)))
        removed = chosen[:1] if "remove" in kinds or len(tasks) > 25 else []
        staged = stage_position_deletes(
            table, [(task, self._choose(table, task)) for task in chosen if "delete" in kinds and task not in removed]
        )
        for task in removed:
            self._forget(table, task, range(task.file.record_count))
        added = [as_arrow(self._new_rows())] if "add" in kinds or not tasks else []
        commit(
            self.catalog,
            RowDelta(
                added=stage_rows(table, added),
                removed=[task.file for task in removed],
                deletes=[deletes for _, deletes in staged.files],
                outdated=[*staged.outdated, *own_deletes(removed)],
                snapshot_id=table.metadata.current_snapshot_id,
            ),
        )

    def check(self, duck: duckdb.DuckDBPyConnection) -> None:
        """Compare what PyIceberg and DuckDB read with the model, and look at the table's metadata."""
        table, wanted = self.table, sorted(self.rows.values(), key=lambda row: row[0])
        assert as_rows(table.scan().to_arrow()) == wanted
        assert count_rows(table) == len(wanted)
        answer = duck.execute(f"SELECT * FROM iceberg_scan({quote_text(table.metadata_location)})").to_arrow_table()
        assert as_rows(answer) == wanted
        check_metadata(table)

    def _new_rows(self) -> list[Row]:
        rows: list[Row] = []
        for _ in range(self.chance.randint(1, 12)):
            at = None if self.chance.random() < 0.05 else START + timedelta(hours=self.chance.randrange(72))
            rows.append((self.next_id, at, self.chance.choice([None, "a", "ü"])))
            self.next_id += 1
        self.rows |= {row[0]: row for row in rows}
        return rows

    def _choose(self, table: Table, task: FileScanTask) -> pa.Array:
        count = task.file.record_count
        positions = [self.chance.randrange(count) for _ in range(self.chance.randint(1, max(1, count // 3)))]
        self._forget(table, task, positions)
        return pa.array(positions, pa.int64())

    def _forget(self, table: Table, task: FileScanTask, positions: Sequence[int]) -> None:
        with table.io.new_input(task.file.file_path).open() as stream:
            ids = pq.read_table(stream)["id"].to_pylist()
        for position in positions:
            self.rows.pop(ids[position], None)


def check_metadata(table: Table) -> None:
    """Check that a data file has one delete file at most, that none is left over, and that the summary counts right."""
    snapshot = table.current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    live: dict[ManifestContent, list[DataFile]] = {ManifestContent.DATA: [], ManifestContent.DELETES: []}
    for manifest in snapshot.manifests(table.io):
        entries = manifest.fetch_manifest_entry(table.io, discard_deleted=True)
        assert (manifest.added_files_count or 0) + (manifest.existing_files_count or 0) == len(entries)
        assert all(entry.sequence_number and entry.sequence_number >= manifest.min_sequence_number for entry in entries)
        live[manifest.content] += [entry.data_file for entry in entries]
    data, deletes = live[ManifestContent.DATA], live[ManifestContent.DELETES]
    targets = [str(file.lower_bounds[2147483546], "utf-8") for file in deletes]
    assert len(targets) == len(set(targets))
    assert set(targets) <= {file.file_path for file in data}
    files = (*data, *deletes)
    totals = {
        "total-data-files": len(data),
        "total-delete-files": len(deletes),
        "total-records": sum(file.record_count for file in data),
        "total-position-deletes": sum(file.record_count for file in deletes),
        "total-equality-deletes": 0,
        "total-files-size": sum(file.file_size_in_bytes for file in files),
    }
    assert {name: int(snapshot.summary[name] or 0) for name in totals} == totals
