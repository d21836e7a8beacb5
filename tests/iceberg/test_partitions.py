"""List a table's partitions, and the partitions that a snapshot changed."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pyarrow as pa
from pyiceberg.table import Table

from headrace.iceberg.catalog.tables import ensure_table, open_catalog
from headrace.iceberg.schema.partitions import changed_partitions, list_partitions
from headrace.settings import load_settings
from headrace.spec import Column, Primitive, TableName
from headrace.spec.model.pipeline import Transform


def make_table(folder: Path, *, partition_by: tuple[Transform, ...]) -> Table:
    settings = load_settings(flags={}, environ={}, folder=folder)
    columns = (Column("id", Primitive("long")), Column("day", Primitive("date")))
    name = TableName("marts", "days")
    place = f"{settings.warehouse}/marts/days"
    return ensure_table(open_catalog(settings), name, columns=columns, partition_by=partition_by, location=place)


def append(table: Table, *days: date) -> int:
    """Append a row for each day, and return the snapshot that has them."""
    table.append(pa.Table.from_pylist([{"id": 1, "day": day} for day in days], schema=table.schema().as_arrow()))
    snapshot = table.current_snapshot()
    assert snapshot is not None
    return snapshot.snapshot_id


def test_list_and_changed_partitions(tmp_path: Path) -> None:
    table = make_table(tmp_path, partition_by=(Transform("months", "day"),))
    assert list_partitions(table) == ()
    first = append(table, date(2026, 1, 3), date(2026, 1, 9), date(2026, 3, 1))
    second = append(table, date(2026, 3, 2), date(1969, 12, 31))
    assert list_partitions(table) == ("day_month=1969-12", "day_month=2026-01", "day_month=2026-03")
    assert changed_partitions(table, first) == ("day_month=2026-01", "day_month=2026-03")
    assert changed_partitions(table, second) == ("day_month=1969-12", "day_month=2026-03")
    table.delete("day = '1969-12-31'")
    snapshot = table.current_snapshot()
    assert snapshot is not None
    assert list_partitions(table) == ("day_month=2026-01", "day_month=2026-03")
    assert changed_partitions(table, snapshot.snapshot_id) == ("day_month=1969-12",)
    assert changed_partitions(table, 1) == (), "a snapshot that is gone"


def test_list_partitions_of_an_unpartitioned_table(tmp_path: Path) -> None:
    table = make_table(tmp_path, partition_by=())
    assert changed_partitions(table, append(table, date(2026, 1, 3))) == ()
    assert list_partitions(table) == ()
