"""A table's definition: what it includes, and how its digest stays stable between versions."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog

from headrace.build.definition import FuzzyDefinition, MatchDefinition, TableDefinition, WindowDefinition, definition_of
from headrace.build.legacy_definition import legacy_digest
from headrace.build.plan import TablePlan, plan_table
from headrace.iceberg.catalog.tables import ensure_table, open_catalog
from headrace.iceberg.ledgers.build import KEY, BuildLedger
from headrace.settings import load_settings
from headrace.spec import Pipeline, load_pipeline
from headrace.spec.model.layers import LayerTable
from headrace.spec.model.types import Column, Primitive
from tests.support.folders import write_files

FILES = {
    "pipeline.yml": """name: mine
about: Orders.
streams:
  orders: {topic: orders, format: json, schema: schemas/order.sql, table: raw.orders}
""",
    "schemas/order.sql": "id LONG, n LONG, op STRING, note STRING",
}
TABLE = """/*
keys: [id]
sequence_by: n
apply_as_deletes: op = 'd'
expect:
  an order has a number: {that: id > 0, on_failure: drop}
*/
SELECT id, n, op FROM raw.orders WHERE n > 0
"""
DOCUMENT = {
    "version": 1,
    "kind": "upsert",
    "query": "SELECT id, n, op FROM raw.orders WHERE n > 0",
    "keys": ["id"],
    "sequence_by": ["n"],
    "apply_as_deletes": "op = 'd'",
    "expect": [["id > 0", "drop"]],
}
DIGEST = "1:2ae0b211486d845cd41e08be04fa761636bb974f41bdb692a078fdfdbdd2fc96"


def load(folder: Path, text: str, *, name: str = "shape/rows.sql") -> Pipeline:
    for old in (folder / "pipelines/mine/shape").glob("*"):
        old.unlink()
    write_files(folder / "pipelines" / "mine", {**FILES, name: text})
    return load_pipeline("mine", environ={}, folder=folder)


def table_of(folder: Path, text: str, *, name: str = "shape/rows.sql") -> LayerTable:
    (table,) = load(folder, text, name=name).tables
    return table


def test_definition_is_a_document_whose_digest_is_pinned(tmp_path: Path) -> None:
    definition = definition_of(table_of(tmp_path, TABLE))
    assert definition.document == DOCUMENT
    assert definition.digest == DIGEST
    assert set(definition.field_digests) == set(DOCUMENT) - {"version"}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("SELECT id, n, op FROM", "select id,\n  n, -- its number\n  op\nfrom"),
        ("op = 'd'", "op='d'"),
        ("id > 0,", "id>0,"),
        ("/*\nkeys", "/*\nabout: All orders.\npartition_by: [id]\nconstant: [id]\nkeys"),
        ("an order has a number", "the number is known"),
        ("on_failure: drop}", "on_failure: drop}\n  it is new: n > 5"),
        ("on_failure: drop}", "otherwise: drop}\n  it is new: {that: n > 5, otherwise: count}"),
    ],
)
def test_definition_stays_the_same_when_no_row_changes(old: str, new: str, tmp_path: Path) -> None:
    assert old in TABLE
    assert definition_of(table_of(tmp_path, TABLE.replace(old, new))).digest == DIGEST


@pytest.mark.parametrize(
    ("old", "new", "changed"),
    [
        ("n > 0", "n > 1", ("the query",)),
        ("keys: [id]", "keys: [id, op]", ("keys",)),
        ("sequence_by: n", "sequence_by: [n, id]", ("sequence_by",)),
        ("op = 'd'", "op = 'D'", ("apply_as_deletes",)),
        ("apply_as_deletes", "except_column_list: [op]\napply_as_deletes", ("except_column_list",)),
        ("id > 0, on_failure: drop", "id > 1, on_failure: drop", ("expect",)),
        ("id > 0, on_failure: drop", "id > 0, on_failure: warn", ("expect",)),
        ("sequence_by: n", "sequence_by: n\nstored_as_scd_type: 2", ("kind",)),
        ("sequence_by: n\napply_as_deletes: op = 'd'\n", "", ("kind", "sequence_by", "apply_as_deletes")),
    ],
)
def test_definition_names_changed_fields(old: str, new: str, changed: tuple[str, ...], tmp_path: Path) -> None:
    before = definition_of(table_of(tmp_path, TABLE))
    after = definition_of(table_of(tmp_path, TABLE.replace(old, new)))
    assert after.digest != before.digest
    assert after.changes_since(before.field_digests) == changed
    assert before.changes_since(after.field_digests) == changed
    assert after.changes_since({}) == ()


def test_definition_of_a_python_table_is_its_text(tmp_path: Path) -> None:
    text = 'from headrace import table\n\n\n@table(keys=["id"])\ndef rows(orders):\n    return orders\n'
    before = definition_of(table_of(tmp_path, text, name="shape/rows.py"))
    after = definition_of(table_of(tmp_path, text.replace("return orders", "return orders.distinct()"), name="shape/rows.py"))
    assert (before.python, before.query) == (text, None)
    assert after.changes_since(before.field_digests) == ("the Python file",)
    assert after.changes_since(definition_of(table_of(tmp_path, TABLE)).field_digests)[:2] == ("kind", "the query")


def test_definition_field_with_its_default_keeps_the_digest() -> None:
    """Version 0.3 may add a field at any level: existing tables are not built again."""
    grown_window = dataclasses.make_dataclass(
        "Grown", [("slide", float | None, dataclasses.field(default=None))], bases=(WindowDefinition,), frozen=True
    )
    grown = dataclasses.make_dataclass(
        "Grown",
        [("frozen", tuple, dataclasses.field(default=())), ("target_lag", float | None, dataclasses.field(default=None))],
        bases=(TableDefinition,),
        frozen=True,
        kw_only=True,
    )
    now = TableDefinition(kind="features", query="SELECT 1", window=WindowDefinition(("k",), "at", 60.0))
    values = {"kind": "features", "query": "SELECT 1", "window": grown_window(("k",), "at", 60.0)}
    later, used = grown(**values), grown(**values, frozen=("raw.rates",))
    assert (later.digest, later.field_digests) == (now.digest, now.field_digests)
    assert used.digest != now.digest
    assert used.changes_since(now.field_digests) == ("frozen",)
    assert now.changes_since(used.field_digests) == ("frozen",), "an older version names a field that it does not know"


def test_defaults_of_the_document_are_those_that_were_recorded() -> None:
    """A default is what a document means without the field: who changes one changes what recorded digests stand for."""
    defaults = {
        field.name: field.default
        for kind in (TableDefinition, MatchDefinition, FuzzyDefinition)
        for field in dataclasses.fields(kind)
        if field.default not in (dataclasses.MISSING, None, ())
    }
    assert defaults == {"case": True, "plus_tags": True, "dots": True, "max_records": 50}


def plan_recorded(folder: Path, text: str, entry: BuildLedger) -> TablePlan:
    """Return the plan of a table whose last build is `entry`."""
    pipeline = load(folder, text)
    catalog: Catalog = open_catalog(load_settings(flags={}, environ={}, folder=folder))
    (table,) = pipeline.tables
    columns = (Column("id", Primitive("long")),)
    stored = ensure_table(catalog, table.table, columns=columns, location=f"file://{folder}/rows")
    with stored.transaction() as transaction:
        transaction.set_properties({KEY: entry.to_json()})
    return plan_table(catalog, pipeline, table)


def test_plan_recognises_a_table_that_an_older_version_built(tmp_path: Path) -> None:
    legacy = BuildLedger(build_id=3, definition=legacy_digest(table_of(tmp_path, TABLE)), writer="w")
    text = json.loads(legacy.to_json())
    del text["definition_fields"]
    entry = BuildLedger.from_json(json.dumps(text))
    assert plan_recorded(tmp_path, TABLE, entry).action == "nothing"
    changed = plan_recorded(tmp_path, TABLE.replace("n > 0", "n > 1"), entry)
    assert (changed.action, changed.why) == ("refresh", ("its definition has changed",))


def test_plan_names_changed_definition_fields(tmp_path: Path) -> None:
    definition = definition_of(table_of(tmp_path, TABLE))
    entry = BuildLedger(build_id=3, definition=definition.digest, definition_fields=definition.field_digests, writer="w")
    assert plan_recorded(tmp_path, TABLE, entry).action == "nothing"
    changed = plan_recorded(tmp_path, TABLE.replace("n > 0", "n > 1").replace("[id]", "[id, op]"), entry)
    assert (changed.action, changed.why) == ("refresh", ("its definition has changed: the query, keys",))
