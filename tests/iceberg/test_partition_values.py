"""Rows of tables with identity partitions on dates and times are committed and found."""

from __future__ import annotations

from datetime import date, datetime, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headrace.iceberg.catalog.tables import ensure_table, open_catalog
from headrace.iceberg.commits.append import append_once
from headrace.iceberg.files.staged_rows import stage_rows
from headrace.settings import load_settings
from headrace.spec.model.pipeline import TableName, Transform
from headrace.spec.model.types import Column, Primitive

MOMENT = datetime(2026, 2, 3, 4, 5, 6, 7, tzinfo=timezone.utc)


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (Primitive("date"), [date(2026, 2, 3), date(1960, 1, 1), None]),
        (Primitive("timestamp"), [MOMENT, datetime(1960, 1, 1, tzinfo=timezone.utc), None]),
        (Primitive("timestamp_ntz"), [MOMENT.replace(tzinfo=None), None]),
    ],
)
def test_identity_partitions_of_dates_and_times(tmp_path: Path, kind: Primitive, values: list[Any]) -> None:
    catalog = open_catalog(load_settings(flags={}, environ={}, folder=tmp_path))
    table = ensure_table(
        catalog,
        TableName("raw", "events"),
        columns=(Column("at", kind), Column("n", Primitive("long"))),
        partition_by=(Transform("identity", "at"),),
        location=f"file://{tmp_path}/events",
    )
    schema = table.schema().as_arrow()
    files = stage_rows(table, [pa.Table.from_pylist([{"at": at, "n": n} for n, at in enumerate(values)], schema=schema)])
    append_once(catalog, table, files=files, entry=lambda *_: {}, is_committed=lambda _: False)
    again = catalog.load_table("raw.events")
    rows = again.scan().to_arrow().to_pylist()
    assert sorted((row["n"], row["at"]) for row in rows) == list(enumerate(values))
    for value in values:
        condition = "at IS NULL" if value is None else f"at = '{value.isoformat()}'"
        assert len(list(again.scan(row_filter=condition).plan_files())) == 1, "the others are pruned by their partitions"
