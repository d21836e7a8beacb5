"""Encode events as message values in the format of their stream."""

from __future__ import annotations

import decimal
import io
import json
from collections.abc import Callable, Mapping
from datetime import date, datetime, timezone

import fastavro

from headrace.spec.model.pipeline import Stream

Event = Mapping[str, object]


def encoder_of(stream: Stream) -> Callable[[Event], bytes]:
    """Return the function that encodes one event of this stream."""
    if stream.format == "json":
        return lambda event: _JSON.encode(event).encode()
    schema = fastavro.parse_schema(json.loads(stream.avro_schema or ""))

    def encode(event: Event) -> bytes:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, schema, dict(event), strict=True)
        return out.getvalue()

    return encode


def as_json(value: object) -> object:
    """Return a value for JSON: times in UTC with microseconds, decimals as text."""
    if isinstance(value, datetime):
        return value.astimezone(timezone.utc).isoformat(timespec="microseconds").replace("+00:00", "Z")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, decimal.Decimal):
        return str(value)
    raise TypeError(f"{type(value).__name__} can't be encoded as JSON")


_JSON = json.JSONEncoder(default=as_json, separators=(",", ":"), ensure_ascii=False)
"""Created once: `json.dumps` would create an encoder per event."""
