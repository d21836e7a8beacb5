"""Tables grow when messages bring columns that they lack."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog

from headrace.errors import LandingError, UnavailableError
from headrace.iceberg.catalog.tables import ensure_table, open_catalog, table_location
from headrace.landing.growth import grow_table
from headrace.settings import load_settings
from headrace.spec.model.columns import landed_columns
from tests.landing.envelopes import DOUBLE, INT, LONG, TEXT, Table, decimal

FIRST = Table({"id": INT, "total": decimal(10, 2)})


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    settings = load_settings(flags={}, environ={}, folder=tmp_path)
    catalog = open_catalog(settings)
    ensure_table(
        catalog,
        FIRST.stream.table,
        columns=landed_columns(FIRST.stream),
        location=table_location(settings, FIRST.stream.table),
    )
    return catalog


def columns(catalog: Catalog) -> dict[str, str]:
    after = catalog.load_table("raw.things").schema().find_field("after").field_type
    return {field.name: str(field.field_type) for field in after.fields}  # type: ignore[attr-defined]


def test_grow_table_prefers_the_first_of_contradicting_schemas(catalog: Catalog) -> None:
    schemas = [Table({**FIRST.columns, "new": kind}).stream.columns for kind in (INT, TEXT, LONG)]
    table, notes = grow_table(catalog, catalog.load_table("raw.things"), schemas)
    assert columns(catalog) == {"id": "int", "total": "decimal(10, 2)", "new": "long"}
    assert notes == ("raw.things has a new column: before.new, long", "raw.things has a new column: after.new, long")
    assert table.schema() == catalog.load_table("raw.things").schema()


def test_grow_table_adds_no_column_of_an_invalid_schema(catalog: Catalog) -> None:
    impossible = Table({"id": TEXT, "total": decimal(10, 2), "new": TEXT}).stream.columns
    with pytest.raises(LandingError, match="columns that can't be added to the table"):
        grow_table(catalog, catalog.load_table("raw.things"), [impossible])
    assert columns(catalog) == {"id": "int", "total": "decimal(10, 2)"}


def test_grow_table_accepts_columns_of_another_writer(catalog: Catalog) -> None:
    seen = catalog.load_table("raw.things")
    wider = Table({**FIRST.columns, "weight": DOUBLE}).stream.columns
    grow_table(catalog, seen, [wider])
    table, notes = grow_table(catalog, seen, [wider])
    assert columns(catalog) == {"id": "int", "total": "decimal(10, 2)", "weight": "double"}
    assert len(notes) == 2
    assert table.schema() != seen.schema()


def test_grow_table_raises_a_retryable_error_on_a_conflict(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    stale = catalog.load_table("raw.things")
    grow_table(catalog, stale, [Table({**FIRST.columns, "weight": DOUBLE}).stream.columns])
    monkeypatch.setattr(catalog, "load_table", lambda name: stale)
    with pytest.raises(UnavailableError, match="another writer changed the table's schema"):
        grow_table(catalog, stale, [Table({**FIRST.columns, "note": TEXT}).stream.columns])
