"""Decode a message's key, value and headers for display: JSON, Avro or text, else the bytes with the reason."""

from __future__ import annotations

import base64
import binascii
import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from decimal import Decimal
from functools import lru_cache
from typing import Literal

import msgspec

from headrace.errors import HeadraceError
from headrace.kafka.avro_messages import BadMessageError, MessageReader
from headrace.printable import printable
from headrace.serving.values import as_text
from headrace.spec.model.pipeline import Framing

Form = Literal["null", "empty", "json", "avro", "text", "bytes"]

_HIDDEN = "(hidden)"
_SECRET = re.compile(
    r"(^|[._-])(password|passwd|secret|credentials?|(api|private|secret)[._-]?key|(access|auth|refresh)[._-]?token|jaas\.config)$",
    re.IGNORECASE,
)
_REGISTRY_MARK = 0
_REGISTRY_PREFIX = 5
BYTES_SHOWN = 2_000
_NAMED_DECIMAL = "org.apache.kafka.connect.data.Decimal"
_FREE_DECIMAL = "io.debezium.data.VariableScaleDecimal"
_OPERATIONS = {"c": "insert", "u": "update", "d": "delete", "r": "read of the snapshot", "t": "truncate", "m": "message"}

_read_json = msgspec.json.Decoder(float_hook=Decimal).decode
_write_json = msgspec.json.Encoder(decimal_format="number").encode


@dataclass(frozen=True)
class Shown:
    """A decoded key, value or header.

    `text` is JSON if `form` is json or avro, otherwise the text, or the first bytes with the unprintable ones escaped. `size`
    is its length in bytes. `schema` is what it was decoded with, `about` a summary of a Debezium envelope, and `reason` why it
    was not decoded, in which case `raw` has all bytes.
    """

    form: Form
    text: str
    size: int
    schema: str = ""
    about: str = ""
    reason: str = ""
    raw: bytes = b""


@dataclass(frozen=True)
class Writing:
    """The encoding of a topic's messages.

    `avro` is the schema of messages without a registry's prefix, and `framing` is that of its stream. `find_schema` returns the
    schema of a registry's id; it is None without a registry.
    """

    avro: str | None = None
    find_schema: Callable[[int], str] | None = None
    framing: Framing = "auto"


def read_part(raw: bytes | None, writing: Writing) -> Shown:
    """Return a decoded key or value. Never raises for its content, and hides fields with secrets."""
    if raw is None:
        return Shown("null", "", 0)
    if not raw:
        return Shown("empty", "", 0)
    reasons = []
    plain = framed = None
    if writing.avro is not None and writing.framing != "confluent":
        plain = _read_avro(raw, raw, writing.avro, schema="the stream's schema")
    if raw[0] == _REGISTRY_MARK and len(raw) >= _REGISTRY_PREFIX and not (writing.avro and writing.framing == "none"):
        framed = _read_registered(raw, writing)
    decoded = [part for part in (plain, framed) if part and part.form != "bytes"]
    if len(decoded) == 1:
        return decoded[0]
    if decoded:
        return _as_bytes(raw, "it is valid both as plain Avro and as Confluent-framed: set the stream's framing")
    reasons += [part.reason for part in (plain, framed) if part]
    if not reasons or raw[:1] in b"{[":
        part = _read_plain(raw)
        if part.form != "bytes":
            return part
        reasons.append(part.reason)
    return _as_bytes(raw, "; ".join(reason for reason in reasons if reason))


def read_header(name: str, raw: bytes | None) -> Shown:
    """Return a decoded header value; hide it if its name suggests a secret."""
    if raw and _SECRET.search(name):
        return Shown("text", _HIDDEN, len(raw))
    return read_part(raw, Writing())


def _read_registered(raw: bytes, writing: Writing) -> Shown:
    schema_id = int.from_bytes(raw[1:_REGISTRY_PREFIX], "big")
    if writing.find_schema is None:
        return _as_bytes(raw, f"it has schema {schema_id} of a registry, and no registry is configured")
    try:
        text = writing.find_schema(schema_id)
    except HeadraceError as error:
        return _as_bytes(raw, f"its schema {schema_id} could not be read: {error.what}")
    return _read_avro(raw, raw[_REGISTRY_PREFIX:], text, schema=f"schema {schema_id} of the registry")


def _read_avro(raw: bytes, body: bytes, schema_text: str, *, schema: str) -> Shown:
    try:
        value = _message_reader(schema_text).read(body)
    except BadMessageError as error:
        reason = str(error)
    except Exception as error:  # the schema itself can't be read
        reason = f"{type(error).__name__}: {error}"[:300]
    else:
        return _as_json("avro", value, size=len(raw), schema=schema)
    return _as_bytes(raw, f"{reason} (read with {schema})")


@lru_cache(maxsize=256)
def _message_reader(schema_text: str) -> MessageReader:
    return MessageReader(json.loads(schema_text))


def _read_plain(raw: bytes) -> Shown:
    """Return JSON, text, or bytes if it is neither."""
    reason = ""
    try:
        value, schema = _read_json(raw), ""
        if isinstance(value, dict) and value.keys() == {"schema", "payload"} and isinstance(value["schema"], dict):
            value, schema = _with_decimals(value["payload"], value["schema"]), "the schema in the message"
        return _as_json("json", value, size=len(raw), schema=schema)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        reason = f"not JSON: {error}" if raw[:1] in b"{[" else ""
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        return _as_bytes(raw, reason or "neither JSON nor text, and no schema is known")
    if all(character.isprintable() or character in "\r\n\t" for character in text):
        return Shown("text", printable(text), len(raw), reason=reason)
    return _as_bytes(raw, reason or "neither JSON nor text, and no schema is known")


def _as_json(form: Form, value: object, *, size: int, schema: str) -> Shown:
    plain = _plain(value)
    text = msgspec.json.format(_write_json(plain), indent=2).decode("utf-8")
    return Shown(form, printable(text), size, schema=schema, about=_describe_change(plain))


def _as_bytes(raw: bytes, reason: str) -> Shown:
    text = raw[:BYTES_SHOWN].decode("utf-8", errors="backslashreplace")
    return Shown("bytes", printable(text), len(raw), reason=reason, raw=raw)


def _plain(value: object) -> object:
    """Return a value in JSON types, exact if JSON allows it, without secrets."""
    if isinstance(value, dict):
        if value.keys() == {"scale", "value"} and isinstance(value["value"], bytes) and isinstance(value["scale"], int):
            return _decimal(value["value"], value["scale"])
        return {
            str(name): _HIDDEN if _SECRET.search(str(name)) and item is not None else _plain(item)
            for name, item in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return as_text(value, null="") if isinstance(value, datetime) else value


def _with_decimals(value: object, schema: object) -> object:
    """Return a payload of Connect's JSON with decimals as numbers; Connect encodes them as bytes."""
    if value is None or not isinstance(schema, dict):
        return value
    name, kind = schema.get("name"), schema.get("type")
    if isinstance(value, dict) and kind == "struct":
        if name == _FREE_DECIMAL and isinstance(value.get("value"), str) and isinstance(value.get("scale"), int):
            return _decode_decimal(value["value"], value["scale"], otherwise=value)
        fields = {field.get("field"): field for field in schema.get("fields") or () if isinstance(field, dict)}
        return {field: _with_decimals(item, fields.get(field)) for field, item in value.items()}
    if isinstance(value, list) and kind == "array":
        return [_with_decimals(item, schema.get("items")) for item in value]
    if name == _NAMED_DECIMAL and isinstance(value, str):
        return _decode_decimal(value, (schema.get("parameters") or {}).get("scale"), otherwise=value)
    return value


def _decode_decimal(text: str, scale: object, *, otherwise: object) -> object:
    try:
        return _decimal(base64.b64decode(text, validate=True), int(str(scale)))
    except (binascii.Error, ValueError):
        return otherwise


def _decimal(unscaled: bytes, scale: int) -> Decimal:
    number = int.from_bytes(unscaled, "big", signed=True)
    return Decimal((number < 0, tuple(int(digit) for digit in str(abs(number))), -scale))


def _describe_change(value: object) -> str:
    """Return a one-line summary of a Debezium envelope; empty for any other value."""
    if not isinstance(value, dict) or not isinstance(value.get("source"), dict) or value.get("op") not in _OPERATIONS:
        return ""
    source: Mapping[str, object] = value["source"]
    facts = [f"{_OPERATIONS[value['op']]} of {source.get('schema')}.{source.get('table')}"]
    before, after = value.get("before"), value.get("after")
    if value["op"] == "u" and isinstance(before, dict) and isinstance(after, dict):
        changed = [name for name in after if before.get(name) != after[name]]
        facts.append(f"changed: {', '.join(changed) or 'nothing'}")
    if source.get("lsn") is not None:
        facts.append(f"LSN {source['lsn']}")
    if source.get("txId") is not None:
        facts.append(f"transaction {source['txId']}")
    at = source.get("ts_ms")
    if isinstance(at, int) and 0 < at < 253_402_300_800_000:
        facts.append(as_text(datetime.fromtimestamp(at / 1000, timezone.utc), null=""))
    return printable(" · ".join(facts))
