"""A purge removes snapshots, tags and unneeded files, and keeps rows, the ledger and files of other writers."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from headrace.iceberg.commits.append import append_checkpoint
from headrace.iceberg.files.storage import list_all
from headrace.iceberg.ledgers.landing import KEY, Ledger, read_ledger, was_rolled_back
from headrace.iceberg.maintenance.purge import purge_table
from headrace.spec import TableName
from tests.iceberg.tables import add_files, numbers, write_files

NAME = TableName("raw", "numbers")
LATER = 1e12


def land(catalog: Catalog, table: Table, *, first: int) -> Table:
    fresh = catalog.load_table(table.name())
    planned = read_ledger(fresh)
    new = replace(planned, checkpoint_id=planned.checkpoint_id + 1, offsets={0: first + 2}, writer=str(uuid4()))
    return append_checkpoint(catalog, fresh, files=write_files(fresh, rows=2, first=first), planned=planned, new=new)


def data_files(table: Table) -> set[str]:
    return {file.uri for file in list_all(table.location()) if file.uri.endswith(".parquet")}


def test_purge_removes_history_and_keeps_rows(catalog: Catalog, table: Table) -> None:
    land(catalog, table, first=0)
    table = land(catalog, table, first=2)
    before = read_ledger(table)
    table.manage_snapshots().create_tag(table.snapshots()[0].snapshot_id, "old").commit()
    table.delete("n < 2")
    table.delete("n = 3")
    stray = write_files(table, rows=1)[0].file_path
    half = Path(stray.removeprefix("file://")).with_name(".part-half.parquet.inprogress")
    half.write_bytes(b"x")
    purged = purge_table(catalog, NAME, folders=(table.location(),), before=LATER)
    table = catalog.load_table(str(NAME))
    assert purged.refs == ("old",)
    assert purged.snapshots == 3
    assert numbers(catalog, table) == [2]
    assert len(table.snapshots()) == 1
    assert data_files(table) == {task.file.file_path for task in table.scan().plan_files()}
    assert not half.exists()
    metadata = [file.uri for file in list_all(f"{table.location()}/metadata")]
    assert len(metadata) == 3, "one metadata file, one list of manifests, one manifest"
    current = table.current_snapshot()
    assert current is not None
    assert current.summary is not None
    entries = [
        entry for one in current.manifests(table.io) for entry in one.fetch_manifest_entry(table.io, discard_deleted=False)
    ]
    assert len(entries) == 1
    assert read_ledger(table) == before
    assert not was_rolled_back(table)
    assert KEY in current.summary.additional_properties


def test_purge_does_not_stop_landing(catalog: Catalog, table: Table) -> None:
    land(catalog, table, first=0)
    purge_table(catalog, NAME, folders=(table.location(),), before=LATER)
    land(catalog, table, first=2)
    assert numbers(catalog, table) == [0, 1, 2, 3]


def test_purge_causes_no_warnings_in_later_commits(catalog: Catalog, table: Table, caplog: pytest.LogCaptureFixture) -> None:
    with table.transaction() as transaction:
        transaction.set_properties({"write.metadata.previous-versions-max": "3"})
    for first in range(0, 8, 2):
        land(catalog, table, first=first)
    purge_table(catalog, NAME, folders=(table.location(),), before=LATER)
    for first in range(8, 18, 2):
        land(catalog, table, first=first)
        add_files(catalog.load_table(table.name()), rows=1)
    assert [record.message for record in caplog.records if "delete" in record.message.lower()] == []
    metadata = [file.uri for file in list_all(f"{table.location()}/metadata") if file.uri.endswith(".metadata.json")]
    assert len(metadata) == 4, "the current one and three of before"


def test_purge_is_idempotent(catalog: Catalog, table: Table) -> None:
    land(catalog, table, first=0)
    purge_table(catalog, NAME, folders=(table.location(),), before=LATER)
    files = data_files(table)
    again = purge_table(catalog, NAME, folders=(table.location(),), before=LATER)
    assert (again.snapshots, again.refs) == (0, ())
    assert data_files(table) == files
    assert numbers(catalog, table) == [0, 1]


def test_purge_of_an_empty_table(catalog: Catalog, table: Table) -> None:
    purge_table(catalog, NAME, folders=(table.location(),), before=LATER)
    assert read_ledger(land(catalog, table, first=0)) != Ledger()
    assert numbers(catalog, table) == [0, 1]


def test_purge_keeps_files_newer_than_the_lock(catalog: Catalog, table: Table) -> None:
    land(catalog, table, first=0)
    young = write_files(table, rows=1)[0].file_path
    purge_table(catalog, NAME, folders=(table.location(),), before=time.time() - 60)
    assert young in data_files(table)


def test_purge_of_a_shared_table_removes_own_files(catalog: Catalog, table: Table) -> None:
    """What another pipeline has written and not committed yet must still be there when it does."""
    add_files(land(catalog, table, first=0))
    table = catalog.load_table(str(NAME))
    ours, theirs = (write_files(table, rows=1)[0].file_path for _ in range(2))
    purge_table(catalog, NAME, folders=(table.location(),), before=LATER, is_ours=lambda file: file.uri == ours)
    assert ours not in data_files(table)
    assert theirs in data_files(table)
    assert numbers(catalog, table) == [-1, -1, 0, 1]
