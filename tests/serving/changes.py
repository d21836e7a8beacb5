"""Envelopes of Debezium as Connect writes them: Avro behind a registry's id, and JSON with its schema."""

from __future__ import annotations

import base64
import io
import json
from decimal import Decimal
from typing import Any

import fastavro

ROW = {
    "type": "record",
    "name": "Value",
    "namespace": "shop.public.customers",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "email", "type": "string"},
        {"name": "credit", "type": {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}},
    ],
}
ENVELOPE = {
    "type": "record",
    "name": "Envelope",
    "namespace": "shop.public.customers",
    "fields": [
        {"name": "before", "type": ["null", ROW]},
        {"name": "after", "type": ["null", "shop.public.customers.Value"]},
        {
            "name": "source",
            "type": {
                "type": "record",
                "name": "Source",
                "fields": [
                    {"name": "schema", "type": "string"},
                    {"name": "table", "type": "string"},
                    {"name": "lsn", "type": ["null", "long"]},
                    {"name": "txId", "type": ["null", "long"]},
                    {"name": "ts_ms", "type": "long"},
                ],
            },
        },
        {"name": "op", "type": "string"},
        {"name": "ts_ms", "type": ["null", "long"]},
    ],
}
BEFORE = {"id": 7, "email": "old@example.com", "credit": Decimal("1234567.89")}
UPDATE: dict[str, Any] = {
    "before": BEFORE,
    "after": {**BEFORE, "email": "new@example.com"},
    "source": {"schema": "public", "table": "customers", "lsn": 3414, "txId": 778, "ts_ms": 1_771_963_198_501},
    "op": "u",
    "ts_ms": 1_771_963_198_600,
}


def registered(schema_id: int, schema: Any, value: Any) -> bytes:
    """Return a message in the framing of a registry."""
    body = io.BytesIO()
    fastavro.schemaless_writer(body, fastavro.parse_schema(schema), value)
    return b"\x00" + schema_id.to_bytes(4, "big") + body.getvalue()


def with_schema_in_it() -> bytes:
    """Return the update as Connect's JSON converter writes it."""
    scaled = base64.b64encode((123456789).to_bytes(4, "big", signed=True)).decode()
    row = {
        "type": "struct",
        "fields": [
            {"field": "id", "type": "int64"},
            {"field": "email", "type": "string"},
            {
                "field": "credit",
                "type": "bytes",
                "name": "org.apache.kafka.connect.data.Decimal",
                "parameters": {"scale": "2"},
            },
        ],
    }
    fields = [{**row, "field": "before"}, {**row, "field": "after"}, {"field": "source", "type": "struct"}]
    plain = {part: {**UPDATE[part], "credit": scaled} for part in ("before", "after")}
    return json.dumps({"schema": {"type": "struct", "fields": fields}, "payload": {**UPDATE, **plain}}).encode()
