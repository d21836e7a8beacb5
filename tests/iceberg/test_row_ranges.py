"""Rows within ranges equal a filter over all rows, whether the range or the index is applied first."""

from __future__ import annotations

import uuid
from datetime import date, datetime, timedelta, timezone
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from headrace.iceberg.catalog.tables import ensure_table, open_catalog
from headrace.iceberg.files.live_files import LiveFiles
from headrace.iceberg.files.staged_rows import stage_rows
from headrace.iceberg.rows import row_store as row_store_module
from headrace.iceberg.rows.row_ranges import Within
from headrace.iceberg.rows.row_store import RowStore
from headrace.settings import load_settings
from headrace.spec.model.pipeline import TableName
from headrace.spec.model.types import Column, Primitive
from tests.iceberg.position_deletes import delete_rows

START = datetime(2026, 1, 1, tzinfo=timezone.utc)
COLUMNS = (
    Column("id", Primitive("string")),
    Column("at", Primitive("timestamp")),
    Column("wall", Primitive("timestamp_ntz")),
    Column("day", Primitive("date")),
    Column("n", Primitive("long")),
    Column("i", Primitive("int")),
)
Row = dict[str, Any]


def row(number: int, random: Random) -> Row:
    at = START + timedelta(minutes=number)
    values = {"at": at, "wall": at.replace(tzinfo=None), "day": at.date(), "n": number, "i": number % 100}
    return {"id": f"k{number % 7}", **{name: None if random.random() < 0.02 else value for name, value in values.items()}}


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    return open_catalog(load_settings(flags={}, environ={}, folder=tmp_path))


def fill(catalog: Catalog, folder: Path) -> tuple[Table, list[Row]]:
    """Return a table of four files, small and large, with deleted rows in two of them, and the rows that are left."""
    random = Random(16)
    table = ensure_table(catalog, TableName("raw", "rows"), columns=COLUMNS, location=f"file://{folder}/rows")
    parts = [
        [row(number, random) for number in range(first, last)]
        for first, last in ((0, 900), (900, 910), (910, 1500), (1500, 1503))
    ]
    schema = table.schema().as_arrow()
    paths = []
    for part in parts:
        files = stage_rows(table, [pa.Table.from_pylist(part, schema=schema)])
        with table.transaction() as transaction, transaction.update_snapshot().fast_append() as append:
            for file in files:
                append.append_data_file(file)
        paths.append(files[0].file_path)
        table = catalog.load_table("raw.rows")
    table = delete_rows(catalog, table, {paths[0]: [3, 500, 899], paths[3]: [1]})
    gone = {(0, 3), (0, 500), (0, 899), (3, 1)}
    return table, [row for at, part in enumerate(parts) for number, row in enumerate(part) if (at, number) not in gone]


def shown(rows: list[Row]) -> list[str]:
    return sorted(f"{row['id']} {row['n']} {row['at'] and row['at'].isoformat()}" for row in rows)


RANGES: list[tuple[str, list[tuple[Any, Any]]]] = [
    ("n", [(10, 20)]),
    ("n", [(890, 905), (1400, 1600)]),
    ("n", [(0, 10_000)]),
    ("n", [(5_000, 6_000)]),
    ("i", [(0, 3)]),
    ("at", [(START + timedelta(minutes=5), START + timedelta(minutes=9))]),
    ("wall", [(datetime(2026, 1, 1, 0, 5), datetime(2026, 1, 1, 0, 9))]),
    ("day", [(date(2026, 1, 2), date(2026, 1, 2))]),
]


@pytest.mark.parametrize("few_within", [8, 1, 1_000_000])
@pytest.mark.parametrize("small_rows", [0, 1_024])
def test_rows_are_those_of_a_filter(
    catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, few_within: int, small_rows: int
) -> None:
    monkeypatch.setattr(row_store_module, "_FEW_WITHIN", few_within)
    monkeypatch.setattr(row_store_module, "SMALL_ROWS", small_rows)
    table, rows = fill(catalog, tmp_path)
    store, files = RowStore(tmp_path / "cache", most_bytes=10**9), LiveFiles().of(table, None)
    match = pa.table({"id": ["k1", "k5", uuid.uuid4().hex]})
    for column, ranges in RANGES:
        for wanted in (None, match):
            fetched = store.fetch(table, files, columns=["id", "n", "at"], match=wanted, between={column: ranges})
            expected = [
                row
                for row in rows
                if (wanted is None or row["id"] in ("k1", "k5"))
                and (row[column] is None or any(low <= row[column] <= high for low, high in ranges))
            ]
            assert shown(fetched.to_pylist()) == shown(expected), (column, ranges, wanted is None)


def test_files_outside_the_ranges_are_not_read(catalog: Catalog, tmp_path: Path) -> None:
    table, _ = fill(catalog, tmp_path)
    files = LiveFiles().of(table, None)
    within = Within.of({"i": [(200, 300)]}, table.schema().as_arrow())
    field_id = table.schema().find_field("i").field_id
    with_nulls = {file.path for file in files if (file.file.null_value_counts or {}).get(field_id)}
    assert {file.path for file in within.files_with(files, table.schema())} == with_nulls
    assert len(with_nulls) < len(files)
