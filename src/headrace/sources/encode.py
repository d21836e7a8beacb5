"""Events become message values in the format of their stream."""

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
    """Return a value as JSON has it: times in UTC to the microsecond, decimals as text."""
    if isinstance(value, datetime):
        return value.astimezone(timezone.utc).isoformat(timespec="microseconds").replace("+00:00", "Z")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, decimal.Decimal):
        return str(value)
    raise TypeError(f"{type(value).__name__} can't be said in JSON")


_JSON = json.JSONEncoder(default=as_json, separators=(",", ":"), ensure_ascii=False)
"""Made once: `json.dumps` would make one for each event."""
