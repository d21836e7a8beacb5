"""Orphan files of crashed attempts are removed after the grace period; files that may still be needed are kept."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from headrace.iceberg.catalog.tables import ensure_table
from headrace.iceberg.commits.append import append_once
from headrace.iceberg.files.storage import exists, list_all
from headrace.iceberg.maintenance.expire import expire_snapshots
from headrace.iceberg.maintenance.orphans import Grace, Orphans, find_orphans, remove_orphans
from headrace.iceberg.maintenance.purge import purge_table, stray_files
from headrace.operations.verify.log_history import files_of
from headrace.spec import Column, Primitive, TableName
from tests.iceberg.tables import numbers, write_files

NAME = TableName("raw", "numbers")
GRACE = 1_000.0
NEVER_MS = 1 << 62


@dataclass
class Shore:
    """A table while all kinds of things happen to it, on a clock that a test moves."""

    catalog: SqlCatalog
    table: Table
    now: float = 1e9
    flying: dict[str, tuple[float, Any]] = field(default_factory=dict)
    dead: set[str] = field(default_factory=set)
    read: dict[str, float] = field(default_factory=dict)
    rows: list[int] = field(default_factory=list)
    written: int = 0

    def write(self) -> None:
        """Write a file that is committed later."""
        for file in write_files(self.table, rows=1, first=self.written):
            self.written += 1
            os.utime(file.file_path.removeprefix("file://"), (self.now, self.now))
            self.flying[file.file_path] = self.now, file

    def commit(self) -> None:
        """What was written is committed, unless it took too long."""
        paths = [path for path, (since, _) in self.flying.items() if self.now - since <= GRACE / 2][:1]
        for path in paths:
            _, file = self.flying.pop(path)
            fresh = self.catalog.load_table(str(NAME))
            append_once(self.catalog, fresh, files=[file], entry=lambda *_: {}, is_committed=lambda _: False)
            self.rows = numbers(self.catalog, self.table)

    def die(self) -> None:
        """An attempt ends without a commit, or its files are too old for one."""
        for path in list(self.flying)[:1]:
            self.flying.pop(path)
            self.dead.add(path)

    def replace(self) -> None:
        """A row goes, and so does its file, from the newest snapshot."""
        if self.rows:
            self.catalog.load_table(str(NAME)).delete(f"n = {self.rows[0]}")
            self.rows = self.rows[1:]

    def thin(self) -> None:
        """Expire snapshots that a query may still read."""
        for path in files_of(self.catalog.load_table(str(NAME))):
            self.read[path] = self.now
        expire_snapshots(self.catalog, NAME, readers=(), before_ms=NEVER_MS)

    def clean(self) -> Orphans:
        grace = Grace(GRACE, self.now)
        return remove_orphans(self.catalog, NAME, folders=(self.table.location(),), named=(), grace=grace)

    def check(self) -> None:
        """Compare the existing files with the files that may be needed."""
        needed = set(files_of(self.catalog.load_table(str(NAME))))
        needed |= {path for path, (since, _) in self.flying.items() if self.now - since <= GRACE / 2}
        needed |= {path for path, since in self.read.items() if self.now - since < GRACE}
        assert [path for path in needed if not exists(path)] == []
        assert numbers(self.catalog, self.table) == self.rows


@pytest.mark.parametrize("seed", range(3))
def test_remove_orphans_keeps_needed_files(catalog: SqlCatalog, table: Table, seed: int) -> None:
    shore, chance = Shore(catalog, table), Random(seed)
    steps = [shore.write, shore.commit, shore.write, shore.commit, shore.die, shore.replace, shore.thin, shore.clean]
    for _ in range(40):
        chance.choice(steps)()
        shore.now += chance.choice([0, 10, GRACE / 3, GRACE * 0.6])
        shore.check()
    shore.now += GRACE
    for _ in range(2):
        shore.clean()
        shore.now += GRACE
    shore.check()
    left = [file.uri for file in list_all(table.location()) if file.uri.endswith(".parquet")]
    assert sorted(left) == sorted(files_of(catalog.load_table(str(NAME)))), "files of dead attempts are gone"
    assert shore.dead


def test_remove_orphans_keeps_files_in_ledger_entries(catalog: SqlCatalog, table: Table) -> None:
    shore = Shore(catalog, table)
    shore.write()
    shore.commit()
    named, nameless = (write_files(table, rows=1, first=first)[0].file_path for first in (7, 8))
    later = Grace(0.0, 1e12)
    removed = remove_orphans(catalog, NAME, folders=(table.location(),), named=(named,), grace=later)
    assert nameless in removed.gone
    assert (exists(named), exists(nameless)) == (True, False)


def test_remove_orphans_skips_tables_with_other_locations(catalog: SqlCatalog, table: Table) -> None:
    shore = Shore(catalog, table)
    shore.write()
    shore.commit()
    elsewhere = f"{table.location()}/metadata/../output"
    orphans, waiting = find_orphans(catalog, NAME, folders=(elsewhere,), named=(), grace=Grace(0.0, 1e12))
    assert (orphans, waiting) == (Orphans(), {})


def test_remove_orphans_keeps_files_of_other_tables(catalog: SqlCatalog, table: Table, tmp_path: Path) -> None:
    """A stream can have its files in any folder: here in a folder that all tables share."""
    other = ensure_table(
        catalog, TableName("raw", "others"), columns=(Column("n", Primitive("long")),), location=f"file://{tmp_path}/others"
    )
    for owner in (table, other):
        append_once(catalog, owner, files=write_files(owner, rows=1), entry=lambda *_: {}, is_committed=lambda _: False)
    elsewhere = [tmp_path / "out" / name for name in (f"part-1-{table.metadata.table_uuid}-0.parquet", "00000-1.parquet")]
    foreign = tmp_path / "out" / "part-1-0.parquet"
    for path in (*elsewhere, foreign):
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"x")
    everywhere, logged = (f"file://{tmp_path}",), {f"file://{elsewhere[1]}"}
    stray = stray_files(catalog.load_table(str(NAME)), everywhere, logged=logged)
    assert sorted(file.uri for file in stray) == sorted(f"file://{path}" for path in elsewhere)
    removed = remove_orphans(catalog, NAME, folders=everywhere, named=(), grace=Grace(0.0, 1e12), logged=logged)
    assert {uri for uri in removed.gone if "/metadata/" not in uri} == {f"file://{path}" for path in elsewhere}
    assert foreign.exists()
    assert numbers(catalog, other) == [0]
    purge_table(catalog, NAME, folders=everywhere, before=1e12)
    assert numbers(catalog, other) == numbers(catalog, table) == [0]
