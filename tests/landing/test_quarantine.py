"""Refused rows reach the quarantine exactly once, whichever application flushes them and however often."""

from __future__ import annotations

import uuid
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from headrace.iceberg.catalog.tables import ensure_table, open_catalog
from headrace.iceberg.files.write import TableFiles, TableFormat
from headrace.iceberg.ledgers.landing import Ledger
from headrace.iceberg.metadata.quarantine import (
    QUARANTINE,
    QUARANTINE_COLUMNS,
    flush_quarantine,
    read_refused_before,
    read_settled,
)
from headrace.settings import load_settings


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    return open_catalog(load_settings(flags={}, environ={}, folder=tmp_path))


@pytest.fixture
def quarantine(catalog: Catalog, tmp_path: Path) -> Table:
    return ensure_table(catalog, QUARANTINE, columns=QUARANTINE_COLUMNS, location=f"file://{tmp_path}/quarantine")


def refuse(quarantine: Table, label: str, *offsets: int) -> str:
    """Write a file of refused rows, and return its path."""
    table_format = TableFormat(quarantine.schema(), quarantine.spec())
    files = TableFiles(table_format, folder=quarantine.location(), name=str(uuid.uuid4()))
    rows = [
        {"stream": label, "partition": 0, "offset": offset, "original_bytes": b"x", "checkpoint_id": 3} for offset in offsets
    ]
    files.write(pa.Table.from_pylist(rows, schema=table_format.arrow_schema))
    (file,) = files.close()
    return file.file_path


def held(catalog: Catalog) -> list[tuple[str, int]]:
    rows = catalog.load_table(str(QUARANTINE)).scan().to_arrow().to_pylist()
    return sorted((row["stream"], row["offset"]) for row in rows)


def test_flush_quarantine_commits_files_of_several_streams_in_one_snapshot(catalog: Catalog, quarantine: Table) -> None:
    ledgers = {
        "p.a": Ledger(3, {0: 10}, quarantine_files=(refuse(quarantine, "p.a", 1, 2), refuse(quarantine, "p.a", 7))),
        "p.b": Ledger(1, {0: 5, 1: 6}, quarantine_files=(refuse(quarantine, "p.b", 4),)),
        "p.c": Ledger(9, {0: 1}),
    }
    flushed = flush_quarantine(catalog, quarantine, ledgers)
    assert held(catalog) == [("p.a", 1), ("p.a", 2), ("p.a", 7), ("p.b", 4)]
    assert len(flushed.snapshots()) == 1
    assert (read_settled(flushed, "p.b").checkpoint_id, read_settled(flushed, "p.b").offsets) == (1, {0: 5, 1: 6})
    assert read_settled(flushed, "p.c").checkpoint_id == 0
    assert len(flush_quarantine(catalog, flushed, ledgers).snapshots()) == 1


def test_flush_quarantine_skips_files_that_a_successor_committed(catalog: Catalog, quarantine: Table) -> None:
    """It was stopped between its commit and its flush. The successor flushed for it and has refused more rows since."""
    stale = catalog.load_table(quarantine.name())
    old = Ledger(3, {0: 10}, quarantine_files=(refuse(quarantine, "p.a", 1),))
    new = Ledger(4, {0: 20}, quarantine_files=(refuse(quarantine, "p.a", 15),))
    quarantine = flush_quarantine(catalog, quarantine, {"p.a": old})
    flush_quarantine(catalog, quarantine, {"p.a": new})
    flushed = flush_quarantine(catalog, stale, {"p.a": old})
    assert held(catalog) == [("p.a", 1), ("p.a", 15)]
    assert read_settled(flushed, "p.a").checkpoint_id == 4


def test_flush_quarantine_adds_only_uncommitted_files(catalog: Catalog, quarantine: Table) -> None:
    stale = catalog.load_table(quarantine.name())
    a = Ledger(1, {0: 10}, quarantine_files=(refuse(quarantine, "p.a", 1),))
    b = Ledger(1, {0: 10}, quarantine_files=(refuse(quarantine, "p.b", 2),))
    flush_quarantine(catalog, quarantine, {"p.a": a})
    flush_quarantine(catalog, stale, {"p.a": a, "p.b": b})
    assert held(catalog) == [("p.a", 1), ("p.b", 2)]


def test_flush_quarantine_commits_of_two_pipelines_at_once(catalog: Catalog, quarantine: Table) -> None:
    stale = catalog.load_table(quarantine.name())
    flush_quarantine(catalog, quarantine, {"p.a": Ledger(1, {0: 1}, quarantine_files=(refuse(quarantine, "p.a", 0),))})
    flushed = flush_quarantine(catalog, stale, {"q.a": Ledger(1, {0: 1}, quarantine_files=(refuse(quarantine, "q.a", 0),))})
    assert held(catalog) == [("p.a", 0), ("q.a", 0)]
    assert (read_settled(flushed, "p.a").checkpoint_id, read_settled(flushed, "q.a").checkpoint_id) == (1, 1)


@pytest.mark.parametrize(
    ("ledger", "refused"),
    [
        (Ledger(3, {0: 10}), set()),  # unchanged
        (Ledger(3, {0: 5}, rollbacks=1), {(0, 7), (0, 9)}),
        (Ledger(3, {0: 5}), {(0, 7), (0, 9)}),  # a backup of the table was restored
        (Ledger(5, {0: 8}, rollbacks=1), {(0, 9)}),  # a batch later
        (Ledger(5, {0: 0}, rollbacks=1, topic_starts=(5,)), set()),  # offsets of another topic
    ],
)
def test_refused_offsets_are_known_individually(
    catalog: Catalog, quarantine: Table, ledger: Ledger, refused: set[tuple[int, int]]
) -> None:
    files = (refuse(quarantine, "p.a", 2, 7, 9), refuse(quarantine, "p.b", 8))
    flushed = flush_quarantine(catalog, quarantine, {"p.a": Ledger(3, {0: 10}, quarantine_files=files)})
    assert read_refused_before(flushed, "p.a", ledger) == refused
