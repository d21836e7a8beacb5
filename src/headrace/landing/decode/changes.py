"""Decode Debezium change events into Arrow columns, whatever schema each was written with.

The first byte of a message tells its format: 0 is Avro with a schema id of a registry, `{` is JSON with an inline schema, and a
message without a value is a tombstone. Messages of one schema are decoded together; rows keep the order of the messages.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import pyarrow as pa
from pyiceberg.io.pyarrow import pyarrow_to_schema

from headrace.errors import NotFoundError
from headrace.iceberg.schema.widening import compare_columns
from headrace.kafka.records import RecordBatch
from headrace.kafka.schemas import Registry
from headrace.landing.decode.decoded import Decoded, GrowthError, Part, merge_parts
from headrace.landing.decode.writers import BadSchemaError, Writer, avro_writer, json_writer
from headrace.spec.model.columns import COORDINATES
from headrace.spec.model.types import Column

_PREFIX = 5  # a zero and the schema's id
_MOST_KNOWN = 1_000
_OWN = frozenset(column.name for column in COORDINATES)


class _Wrapped(msgspec.Struct):
    """JSON as Kafka Connect writes it, with a schema that describes the payload."""

    schema: msgspec.Raw
    payload: msgspec.Raw


_WRAPPED = msgspec.json.Decoder(_Wrapped)


class _SchemaFit(NamedTuple):
    """A schema and how it fits the table: `reason` if the table can't hold it, `lacking` if the table needs new columns."""

    writer: Writer | None
    reason: str = ""
    lacking: tuple[Column, ...] = ()


class ChangesDecoder:
    """Decode a topic of changes into the table's columns. Raise a GrowthError if the table lacks columns.

    `reader` is the stream's own schema: the reader schema of Avro's schema resolution, which keeps additional columns.
    """

    def __init__(self, *, schema: pa.Schema, registry: Registry, reader: str | None = None) -> None:
        self._reader = reader
        self._schema = schema
        self._table = pyarrow_to_schema(schema)
        self._registry = registry
        self._names = [name for name in schema.names if name not in _OWN]
        self._known: dict[bytes, _SchemaFit] = {}

    def decode(self, values: list[bytes | None]) -> Decoded:
        bad: dict[int, str] = {}
        tombstones: list[int] = []
        groups: dict[bytes, tuple[list[int], list[bytes]]] = {}
        for index, value in enumerate(values):
            if value is None:
                tombstones.append(index)
                continue
            try:
                key, body = _split(value)
            except _BadMessageError as error:
                bad[index] = str(error)
                continue
            if body == b"null" and key[:1] == b"{":
                tombstones.append(index)
                continue
            rows, bodies = groups.setdefault(key, ([], []))
            rows.append(index)
            bodies.append(body)
        known = {key: self._find(key) for key in groups}
        lacking = tuple(schema.lacking for schema in known.values() if schema.lacking)
        if lacking:
            raise GrowthError(lacking)
        parts: list[Part] = []
        for key, (rows, bodies) in groups.items():
            writer, reason, _ = known[key]
            if writer is None:
                bad.update(dict.fromkeys(rows, reason))
                continue
            decoded = writer.decode(bodies)
            bad.update({rows[row]: why for row, why in decoded.bad.items()})
            parts.append(Part([rows[row] for row in decoded.rows], decoded.columns))
        parts.append(Part(tombstones, {}))  # rows of nulls
        refused = tuple(schema.reason for schema in known.values() if schema.reason)
        return merge_parts(parts, names=self._names, schema=self._schema, bad=bad, refused=refused)

    def decode_block(self, batches: Sequence[RecordBatch]) -> None:
        """Return None: a topic may have several schemas, and tombstones have no value."""

    def _find(self, key: bytes) -> _SchemaFit:
        """Return a schema by its id or its own text, from the cache if possible."""
        if key in self._known:
            return self._known[key]
        if len(self._known) >= _MOST_KNOWN:
            self._known.clear()
        is_json = key[:1] == b"{"
        name = "its schema" if is_json else f"schema {int.from_bytes(key[1:], 'big')}"
        try:
            text = "" if is_json else self._registry.schema(int.from_bytes(key[1:], "big"))
        except NotFoundError as error:
            return _SchemaFit(None, f"unknown schema: {error.what}")  # not cached: it may be registered later
        try:
            if is_json:
                writer = json_writer(key, schema=self._schema)
            else:
                writer = avro_writer(text, reader=self._reader or text, schema=self._schema)
        except BadSchemaError as error:
            self._known[key] = _SchemaFit(None, f"schema does not fit: of {name}, {error}")
            return self._known[key]
        widening = compare_columns(self._table, writer.columns)
        if widening.problems:
            self._known[key] = _SchemaFit(None, f"schema does not fit: of {name}, {'; '.join(widening.problems[:3])}")
        else:
            self._known[key] = _SchemaFit(writer, lacking=writer.columns if widening.grows else ())
        return self._known[key]


class _BadMessageError(Exception):
    pass


def _split(value: bytes) -> tuple[bytes, bytes]:
    """Return the key of a message's schema (the prefix, or the schema itself) and the rest of the message."""
    first = value[:1]
    if first == b"\x00":
        if len(value) < _PREFIX:
            raise _BadMessageError("truncated Avro: the message ends before the id of its schema")
        return value[:_PREFIX], value[_PREFIX:]
    if first != b"{":
        raise _BadMessageError("neither Avro with a schema's id nor JSON" if value else "empty value")
    try:
        wrapped = _WRAPPED.decode(value)
    except msgspec.ValidationError as error:
        raise _BadMessageError("wrong type: JSON without its schema, as with schemas.enable=false") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _BadMessageError(f"malformed JSON: {error}") from error
    schema = bytes(wrapped.schema)
    if schema[:1] != b"{":
        raise _BadMessageError("wrong type: JSON without its schema, as with schemas.enable=false")
    return schema, bytes(wrapped.payload)
