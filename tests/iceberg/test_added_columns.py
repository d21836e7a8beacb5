"""The columns that are hidden from readers: columns that a build added, never a table's own column of the same name."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.table import Table

from headrace.iceberg.catalog.tables import ensure_table, open_catalog, table_location
from headrace.iceberg.ledgers.build import KEY, BuildLedger
from headrace.iceberg.schema.added_columns import added_columns, hidden_columns, shown_columns
from headrace.serving.sql.query import run_query
from headrace.settings import load_settings
from headrace.spec.model.layers import BUILD_ID, CARRIED, STATE
from headrace.spec.model.pipeline import TableName
from headrace.spec.model.types import Array, Column, Primitive

TEXT, LONG = Primitive("string"), Primitive("long")
BUILT = (Column("k", TEXT), Column(STATE, TEXT), Column(BUILD_ID, LONG))


def make_table(folder: Path, columns: tuple[Column, ...], ledger: BuildLedger | dict[str, Any] | None = None) -> Table:
    settings = load_settings(flags={}, environ={}, folder=folder)
    name = TableName("shop", "stats")
    catalog = open_catalog(settings)
    table = ensure_table(catalog, name, columns=columns, location=table_location(settings, name))
    if ledger is not None:
        text = ledger.to_json() if isinstance(ledger, BuildLedger) else json.dumps({"reads": {}, "expectations": []} | ledger)
        table = table.transaction().set_properties({KEY: text}).commit_transaction()
    return table


def digest_of(value: str) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()[:12]


def earlier(**fields: str) -> dict[str, Any]:
    """What a build wrote that recorded the fields of its definition, but no added columns."""
    return {"build_id": 1, "quarantine_files": [], "definition_fields": fields}


def test_raw_table_shows_its_own_columns_of_these_names(tmp_path: Path) -> None:
    names = (STATE, CARRIED, BUILD_ID, "kafka_offset")
    table = make_table(tmp_path, tuple(Column(name, TEXT) for name in names))
    assert added_columns(table) == frozenset()
    assert shown_columns(table) == names


@pytest.mark.parametrize(
    ("recorded", "hidden"),
    [((BUILD_ID, CARRIED), frozenset()), ((BUILD_ID, CARRIED, STATE), frozenset({STATE}))],
)
def test_build_records_which_columns_it_added(recorded: tuple[str, ...], hidden: frozenset[str], tmp_path: Path) -> None:
    table = make_table(tmp_path, BUILT, BuildLedger(build_id=1, added_columns=recorded))
    assert hidden_columns(table) == hidden
    assert added_columns(table) == {BUILD_ID} | hidden


@pytest.mark.parametrize(
    ("ledger", "hidden"),
    [
        (earlier(kind=digest_of("aggregate")), {STATE}),
        (earlier(kind=digest_of("upsert")), set()),
        ({"build_id": 1, "quarantine_files": []}, {STATE}),
    ],
)
def test_states_of_earlier_builds_stay_hidden(ledger: dict[str, Any], hidden: set[str], tmp_path: Path) -> None:
    assert hidden_columns(make_table(tmp_path, BUILT, ledger)) == hidden


def test_states_are_of_type_text(tmp_path: Path) -> None:
    columns = (Column("k", TEXT), Column(STATE, LONG), Column(BUILD_ID, LONG))
    assert hidden_columns(make_table(tmp_path, columns, {"build_id": 1, "quarantine_files": []})) == set()


@pytest.mark.parametrize(
    ("ledger", "added"),
    [
        (earlier(kind=digest_of("upsert"), unchanged=digest_of("gone")), {CARRIED, BUILD_ID}),
        (earlier(kind=digest_of("upsert")), {BUILD_ID}),
    ],
)
def test_carried_values_of_earlier_builds_are_told_by_their_definition(
    ledger: dict[str, Any], added: set[str], tmp_path: Path
) -> None:
    columns = (Column("k", TEXT), Column(CARRIED, Array(TEXT)), Column(BUILD_ID, LONG))
    assert added_columns(make_table(tmp_path, columns, ledger)) == added


def test_table_hides_its_states_before_its_first_commit(tmp_path: Path) -> None:
    assert hidden_columns(make_table(tmp_path, BUILT)) == {STATE}


def test_query_shows_a_column_that_is_called_like_the_states(tmp_path: Path) -> None:
    table = make_table(tmp_path, (Column("id", TEXT), Column(STATE, TEXT)))
    table.append(pa.table({"id": ["o1"], STATE: ["NY"]}))
    catalog = open_catalog(load_settings(flags={}, environ={}, folder=tmp_path))
    assert run_query(catalog, "SELECT * FROM shop.stats").to_pylist() == [{"id": "o1", STATE: "NY"}]
