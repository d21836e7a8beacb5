"""Debezium streams: the schema that they require, and the columns that it yields."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from headrace.spec import check_pipeline, load_pipeline
from headrace.spec.model.types import Column, Primitive, Struct

ROW = {"type": "record", "name": "Value", "fields": [{"name": "id", "type": "int"}, {"name": "tags", "type": "string"}]}
SOURCE = {"type": "record", "name": "Source", "fields": [{"name": "lsn", "type": "long"}]}
FIELDS: dict[str, Any] = {"before": ["null", ROW], "after": ["null", "Value"], "source": SOURCE, "op": "string"}


def write_pipeline(folder: Path, fields: dict[str, Any], *, extra: str = "") -> None:
    pipeline_folder = folder / "pipelines" / "shop"
    (pipeline_folder / "schemas").mkdir(parents=True)
    envelope = {"type": "record", "name": "Envelope", "fields": [{"name": name, "type": fields[name]} for name in fields]}
    (pipeline_folder / "schemas" / "orders.avsc").write_text(json.dumps(envelope))
    (pipeline_folder / "pipeline.yml").write_text(
        "name: shop\nabout: a test\nstreams:\n  orders:\n    topic: shop.public.orders\n    format: debezium\n"
        f"    schema: schemas/orders.avsc\n    table: raw.orders\n{extra}"
    )


def test_envelope_columns_are_optional(tmp_path: Path) -> None:
    write_pipeline(tmp_path, FIELDS)
    (stream,) = load_pipeline("shop", environ={}, folder=tmp_path).streams
    row = Struct((Column("id", Primitive("int")), Column("tags", Primitive("string"))))
    assert stream.format == "debezium"
    assert stream.columns == (
        Column("before", row),
        Column("after", row),
        Column("source", Struct((Column("lsn", Primitive("long")),))),
        Column("op", Primitive("string")),
    )


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({name: FIELDS[name] for name in ("before", "after", "source")}, "the schema has no op"),
        ({"before": ["null", ROW], "op": "string"}, "the schema has no after and no source"),
        ({**FIELDS, "after": "string"}, '"after" is string, not a record'),
    ],
)
def test_debezium_stream_rejects_a_schema_without_envelope(fields: dict[str, Any], why: str, tmp_path: Path) -> None:
    write_pipeline(tmp_path, fields)
    (error,) = check_pipeline("shop", environ={}, folder=tmp_path).errors
    assert error.what == f"format debezium needs the schema of the whole envelope: {why}"
    assert "before, after, op, source" in error.next_step


def test_debezium_stream_rejects_a_generator(tmp_path: Path) -> None:
    write_pipeline(tmp_path, FIELDS, extra="    generator: orders.py\n")
    (error,) = check_pipeline("shop", environ={}, folder=tmp_path).errors
    assert error.what == "a stream with format: debezium can't have a generator"


def test_debezium_stream_requires_an_avro_schema(tmp_path: Path) -> None:
    write_pipeline(tmp_path, FIELDS)
    pipeline_folder = tmp_path / "pipelines" / "shop"
    (pipeline_folder / "schemas" / "orders.sql").write_text("id INT")
    (pipeline_folder / "pipeline.yml").write_text((pipeline_folder / "pipeline.yml").read_text().replace(".avsc", ".sql"))
    (error,) = check_pipeline("shop", environ={}, folder=tmp_path).errors
    assert error.what == 'format debezium needs an .avsc file, and "schemas/orders.sql" is not one'
