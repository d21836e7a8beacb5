"""stage_tables.yaml: its tables, its errors with lines, and its generation from schemas."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headrace.app.stage_config import config_text, live_schemas, write_schemas
from headrace.settings import load_settings
from headrace.spec import Check, TableName, check_pipeline, load_pipeline
from headrace.spec.loading.scaffold import copy_pipeline
from headrace.spec.loading.stage_config import as_avro, read_captured, stage_text
from headrace.spec.model.layers import LayerTable, Query
from headrace.spec.model.types import Column, Decimal, Primitive, Struct
from headrace.spec.sql.lineage import trace_lineage
from headrace.spec.sql.stage_query import OWN, follow_columns
from tests.support.folders import write_files

CONNECT_VALUE = {
    "type": "struct",
    "name": "shop.public.orders.Value",
    "optional": True,
    "fields": [
        {"field": "id", "type": "int64", "optional": False},
        {"field": "note", "type": "string", "optional": True},
        {
            "field": "total",
            "type": "bytes",
            "optional": True,
            "name": "org.apache.kafka.connect.data.Decimal",
            "parameters": {"scale": "2", "connect.decimal.precision": "12"},
        },
        {
            "field": "rate",
            "type": "struct",
            "optional": True,
            "name": "io.debezium.data.VariableScaleDecimal",
            "fields": [{"field": "scale", "type": "int32"}, {"field": "value", "type": "bytes"}],
        },
        {"field": "created_at", "type": "int64", "optional": False, "name": "io.debezium.time.MicroTimestamp"},
        {"field": "days", "type": "array", "items": {"type": "int32", "optional": True, "name": "io.debezium.time.Date"}},
        {"field": "yes", "type": "boolean", "optional": True},
        {"field": "at", "type": "int64", "optional": True},
    ],
}
CONNECT = {
    "type": "struct",
    "name": "shop.public.orders.Envelope",
    "fields": [
        {**CONNECT_VALUE, "field": "before"},
        {**CONNECT_VALUE, "field": "after"},
        {
            "field": "source",
            "type": "struct",
            "name": "io.debezium.connector.postgresql.Source",
            "fields": [{"field": "ts_ms", "type": "int64"}, {"field": "lsn", "type": "int64", "optional": True}],
        },
        {"field": "op", "type": "string"},
        {"field": "ts_ms", "type": "int64", "optional": True},
    ],
}
STAGE = """\
tables:
  orders:
    about: Orders.
    event_date: at
    partition_by: [event_date]
    columns:
      id:
      total: decimal(10, 2)
      at: {cast: date, unit: ms}
    other_columns: leave_out
  changes:
    source: raw.shop.orders
    expect:
      a note is short: {that: length(note) < 9, on_failure: drop}
"""
FILES = {
    "pipeline.yml": """\
name: shop
about: a test
namespace: "{layer}.shop"
sources: {postgres: {database: shop, connectors: connectors, stage: stage_tables.yaml}}
streams:
  orders: {topic: shop.public.orders, format: debezium, schema: schemas/orders.avsc, table: raw.shop.orders}
""",
    "stage_tables.yaml": STAGE,
    "schemas/orders.avsc": as_avro(CONNECT),
    "connectors/source.template.json": '{"name": "shop", "config": {}}',
    "shape/orders.sql": "SELECT * FROM stage.shop.orders",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_files(tmp_path / "pipelines" / "shop", FILES)


def table(tmp_path: Path, name: str) -> LayerTable:
    pipeline = load_pipeline("shop", environ={}, folder=tmp_path)
    return next(table for table in pipeline.tables if str(table.table) == name)


def names(tmp_path: Path, name: str) -> list[str]:
    lineage = trace_lineage(load_pipeline("shop", environ={}, folder=tmp_path))
    traced = lineage.table(TableName("stage.shop", name))
    assert traced
    return [column.name for column in traced.columns if column.name not in (*OWN, "_build_id")]


def test_stage_entry_becomes_a_table(folder: Path, tmp_path: Path) -> None:
    orders, changes = table(tmp_path, "stage.shop.orders"), table(tmp_path, "stage.shop.changes")
    assert (orders.kind, orders.layer, orders.about, orders.drivers) == (
        "append",
        "stage",
        "Orders.",
        (TableName("raw.shop", "orders"),),
    )
    assert [str(transform) for transform in orders.partition_by] == ["event_date"]
    assert names(tmp_path, "orders") == ["id", "total", "at"]
    assert names(tmp_path, "changes") == ["id", "note", "total", "rate", "created_at", "days", "yes", "at"]
    assert [expectation.on_failure for expectation in changes.expectations] == ["quarantine", "drop"]
    assert isinstance(orders.source, Query)
    lines = orders.source.text.split("\n")
    assert "AS `total`" in lines[7], "a column stands in the line that names it"
    assert "timestamp_millis(_row.`at`)" in lines[8]


def test_stage_table_gets_new_columns_of_its_source(folder: Path, tmp_path: Path) -> None:
    for name, follows in (("changes", True), ("orders", False)):
        stage_table = table(tmp_path, f"stage.shop.{name}")
        stream = load_pipeline("shop", environ={}, folder=tmp_path).streams[0]
        wider = []
        for column in stream.columns:
            inner = column.type.columns if isinstance(column.type, Struct) and column.name in ("before", "after") else ()
            paid = Column("paid_on", Primitive("int"), doc="io.debezium.time.Date")
            wider.append(Column(column.name, Struct((*inner, paid))) if inner else column)
        grown = follow_columns(stage_table, {stream.table: wider})
        assert isinstance(grown.source, Query)
        assert ("date_add(DATE'1970-01-01', CAST(_row.`paid_on` AS INT)) AS `paid_on`" in grown.source.text) == follows
        assert grown.staged == stage_table.staged


# id: (text to replace, replacement, line of the error, message, next step)
MISTAKES = {
    "no such stream": (
        "  orders:\n",
        "  order:\n",
        2,
        'not found: stream "order" with format: debezium',
        'Did you mean "orders"?',
    ),
    "no such source": ("raw.shop.orders", "raw.shop.order", 12, "lands in raw.shop.order", 'Did you mean "raw.shop.orders"?'),
    "no such column": ("total:", "totals:", 8, '"totals" is not a column of raw.shop.orders', 'Did you mean "total"?'),
    "no type": ("decimal(10, 2)", "money", 8, '"money" is not a valid type', "Write a type such as"),
    "no unit": ("unit: ms", "unit: minutes", 9, 'invalid value "minutes" for "unit"', "Choices are: d, s, ms, us, ns"),
    "unit of a text": (
        "      id:\n",
        "      note: {unit: ms}\n",
        7,
        'unit requires an integer column, and "note" is string',
        "Remove the unit",
    ),
    "date of a number": ("event_date: at", "event_date: id", 4, '"id" is long, not a date or a timestamp', "at"),
    "date left out": (
        "event_date: at",
        "event_date: created_at",
        4,
        'event_date "created_at" is not listed in columns',
        "Add it to columns",
    ),
    "not among them": ("other_columns: leave_out", "other_columns: none", 10, 'invalid value "none"', "include, leave_out"),
    "unknown key": ("    about: Orders.", "    abuot: Orders.", 3, 'unknown key "abuot"', 'Did you mean "about"?'),
    "a bad name": ("  changes:", "  Changes:", 11, '"Changes" is not a valid table name', "Use lower-case"),
}


@pytest.mark.parametrize("case", MISTAKES)
def test_stage_file_reports_an_error_with_its_line(folder: Path, tmp_path: Path, case: str) -> None:
    old, new, line, what, fix = MISTAKES[case]
    assert old in STAGE
    (folder / "stage_tables.yaml").write_text(STAGE.replace(old, new, 1))
    result: Check = check_pipeline("shop", environ={}, folder=tmp_path)
    message = str(result.errors[0])
    assert message.startswith(f"pipelines/shop/stage_tables.yaml:{line}: ")
    assert what in message
    assert fix in message


def test_generated_stage_file_has_the_same_tables(folder: Path, tmp_path: Path) -> None:
    settings = load_settings(flags={}, environ={}, folder=tmp_path)
    (folder / "stage_tables.yaml").write_text("tables: {orders: {event_date: created_at, partition_by: [event_date]}}")
    plain = table(tmp_path, "stage.shop.orders")
    (folder / "stage_tables.yaml").unlink()
    captured = read_captured("shop", environ={}, folder=tmp_path)
    live = live_schemas(settings, captured, report=lambda line: None)
    assert [schema.origin for schema in live] == ["orders.avsc"]
    text = config_text(live)
    assert text == stage_text([(captured.streams[0], as_avro(CONNECT))])
    assert "      created_at: timestamp\n" in text
    assert "      rate:       decimal(38,18)\n" in text
    assert '      "yes":       # boolean\n' in text
    (folder / "stage_tables.yaml").write_text(text)
    generated = table(tmp_path, "stage.shop.orders")
    assert isinstance(generated.source, Query)
    assert isinstance(plain.source, Query)
    assert "".join(generated.source.text.split()) == "".join(plain.source.text.split())
    (folder / "schemas/orders.avsc").unlink()
    write_schemas(live)
    assert json.loads((folder / "schemas/orders.avsc").read_text()) == json.loads(as_avro(CONNECT))


def test_connect_schema_equals_its_avro_schema(folder: Path, tmp_path: Path) -> None:
    after = next(
        column for column in load_pipeline("shop", environ={}, folder=tmp_path).streams[0].columns if column.name == "after"
    )
    assert isinstance(after.type, Struct)
    fields_by_name = {field.name: (field.type, field.doc) for field in after.type.columns}
    assert fields_by_name["total"][0] == Decimal(12, 2)
    assert fields_by_name["created_at"] == (Primitive("long"), "io.debezium.time.MicroTimestamp")
    assert fields_by_name["days"][1] == "array<io.debezium.time.Date>"


def test_stage_tables_have_one_owner(folder: Path, tmp_path: Path) -> None:
    copy_pipeline("shop", target_name="mine", folder=tmp_path)
    assert {str(table.table) for table in load_pipeline("mine", environ={}, folder=tmp_path).tables} == {
        "stage.mine.orders",
        "stage.mine.changes",
        "shape.mine.orders",
    }
    assert check_pipeline("mine", environ={}, folder=tmp_path).errors == ()
    text = FILES["pipeline.yml"].replace("name: shop", "name: zoo").replace("raw.shop", "raw.zoo")
    files = {**FILES, "pipeline.yml": text, "stage_tables.yaml": "tables: {orders: {}}\n"}
    write_files(tmp_path / "pipelines" / "zoo", {key: files[key] for key in files if not key.startswith("shape")})
    taken = check_pipeline("zoo", environ={}, folder=tmp_path).errors
    assert 'pipeline "shop" already owns table stage.shop.orders' in str(taken[-1])
