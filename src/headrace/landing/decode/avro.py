"""Decode Avro messages into Arrow columns: as a block where that is provably correct, else one by one.

Record batches as Kafka stores them, and concatenated messages, form a block of an Avro container file. Polars reads a block a
hundred times faster than single messages. A block has no borders, so a truncated message could take bytes of the next one;
`borders.py` proves that none did. Values that polars accepts but Avro or the table does not are checked too: an int past 32
bits (read as a long) and a time outside the calendar.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import fastavro
import polars as pl
import pyarrow as pa
from fastavro.schema import expand_schema

from headrace.kafka.avro_messages import BadMessageError, MessageReader
from headrace.kafka.records import (
    REFUSED,
    SIZE,
    Framed,
    Frames,
    RecordBatch,
    container_file,
    container_header,
    place,
    read_container,
)
from headrace.landing.decode.borders import can_be_measured, keeps_bytes, measure, parts_of
from headrace.landing.decode.decoded import Block, Decoded
from headrace.landing.decode.fitting import Defaults, fit, fit_values, missing
from headrace.landing.decode.resolution import MismatchError, Missing, Resolution, is_logical

_SAYING = {"logicalType", "items", "values", "symbols", "size"}
"""The keys of a schema that change how its type is encoded or decoded."""

_FRAME = 5
"""The bytes of a registry's prefix: a zero and the schema's id."""

_NULL = ("null", ["null"], {"type": "null"})
"""A field of this type takes no bytes and has no column."""


class AvroDecoder:
    """Decode messages of one schema, without a registry's prefix.

    With a `resolution`, rows have the reader's schema; without one, the messages' own schema.
    """

    def __init__(self, avro_schema: str, *, schema: pa.Schema, resolution: Resolution | None = None) -> None:
        written: dict[str, Any] = resolution.writer if resolution else json.loads(avro_schema)
        self._schema = schema
        reader: dict[str, Any] | None = None
        self._defaults: Defaults = {}
        self._missing: tuple[str, ...] = ()
        bare = _write_out(written)["fields"]
        lands = {field["name"] for field in bare}
        if resolution:
            lands = {field["name"] for field in resolution.reader["fields"]}
            reader = None if resolution.reader == written else _as_stored(resolution.reader)
            self._missing = tuple(path for path in resolution.missing if "." not in path)
            self._defaults = _defaults(resolution.missing, schema=schema)
        self._messages = MessageReader(_as_stored(written), reader)
        self._names = [field["name"] for field in bare if field["name"] in lands]
        self.names = (*self._names, *self._missing)
        kinds = [field["type"] for field in bare]
        self._bulk = all(map(can_be_measured, kinds)) and (resolution is None or resolution.in_blocks)
        kinds = kinds if self._bulk else []
        # Number the columns of a block, because a field may have any name.
        fields = [{"name": f"f{index}", "type": _with_longs(kind)} for index, kind in enumerate(kinds)]
        self._parts = [part for index, kind in enumerate(kinds) for part in parts_of(pl.col(f"f{index}"), kind)]
        self._header = container_header(json.dumps({"type": "record", "name": "message", "fields": fields}))
        self._frames = Frames(fields)
        self._numbered = [f"f{index}" for index, field in enumerate(bare) if field["name"] in lands]

    def decode(self, values: list[bytes | None]) -> Decoded:
        if self._bulk and all(values):
            columns = self._decode_values(values)  # type: ignore[arg-type]
            if columns is not None:
                return Decoded(columns, range(len(values)), {})
        return self._decode_each(values)

    def reads(self, value: bytes | None) -> bool:
        """Return whether a message is Avro of this schema up to its last byte."""
        return value is not None and self._messages.count_bytes(value) == len(value) > 0

    def probe(self, prefix: bytes) -> int | None:
        """Return the size of every message that starts with `prefix`: -1 if none can be read, None if the sizes vary."""
        return self._messages.count_bytes(prefix)

    def decode_block(
        self, batches: Sequence[RecordBatch], *, is_suspect: Callable[[Sequence[int]], bool] | None = None
    ) -> Block | None:
        """Return all records, or None if they can't be decoded as a block or `is_suspect` accepts their possible schema ids."""
        framed = self._frames.read(batches) if self._bulk else None
        if framed is None:
            return None
        try:
            if not framed.frame.select((measure(self._parts) == SIZE).all()).item():
                return None
            if not keeps_bytes(framed.frame, framed.value_starts, framed.block, self._parts):
                return None
            if is_suspect and is_suspect(_ids_after_zero(framed)):
                return None
            frame, places = place(framed.frame, batches)
            return Block(self._columns(frame), places)
        except REFUSED:
            return None

    def _decode_values(self, values: list[bytes]) -> Mapping[str, pa.Array] | None:
        """Return the columns of all messages, or None if any message does not decode as a block."""
        sizes = pl.Series([len(value) for value in values], dtype=pl.Int64)
        block, start = container_file(self._header, len(values), int(sizes.sum()), values)
        try:
            frame = read_container(block)
            if frame.height != len(values) or not (frame.select(measure(self._parts)).to_series() == sizes).all():
                return None
            starts = sizes.cum_sum() - sizes + start
            return self._columns(frame) if keeps_bytes(frame, lambda: starts, block, self._parts) else None
        except REFUSED:
            return None

    def _columns(self, frame: pl.DataFrame) -> Mapping[str, pa.Array]:
        """Return a block's columns in the types of the table. Raise a ValueError if a value doesn't fit."""
        table = frame.select(self._numbered).to_arrow(compat_level=pl.CompatLevel.oldest())
        columns = {
            name: fit(column.combine_chunks(), self._schema.field(name).type, path=name, defaults=self._defaults)
            for name, column in zip(self._names, table.columns, strict=True)
        }
        return {**columns, **self._missing_columns(frame.height)}

    def _missing_columns(self, count: int) -> dict[str, pa.Array]:
        """Return the columns that the messages' schema lacks."""
        return {
            name: missing(count, self._schema.field(name).type, path=name, defaults=self._defaults) for name in self._missing
        }

    def _decode_each(self, values: list[bytes | None]) -> Decoded:
        rows: list[int] = []
        records: list[dict[str, object]] = []
        bad: dict[int, str] = {}
        for index, value in enumerate(values):
            try:
                records.append(self._messages.read(value))
                rows.append(index)
            except BadMessageError as refusal:
                bad[index] = str(refusal)
        if bad and self._bulk and rows:
            columns = self._decode_values([value for index in rows if (value := values[index])])
            if columns is not None:
                return Decoded(columns, rows, bad)
        columns = dict[str, pa.Array]()
        late: dict[int, str] = {}
        for name in self._names:
            values_of_name = [record[name] for record in records]
            wanted = self._schema.field(name).type
            columns[name], refused = fit_values(values_of_name, wanted, path=name, defaults=self._defaults)
            late.update(refused)
        columns |= self._missing_columns(len(records))
        return Decoded(columns, rows, bad).without(late)


def _ids_after_zero(framed: Framed) -> list[int]:
    """Return the distinct numbers in bytes 2 to 5 of the values that start with a zero byte and have at least five bytes."""
    data = pl.Series(pa.Array.from_buffers(pa.uint8(), len(framed.block), [None, pa.py_buffer(framed.block)]))
    starts = framed.value_starts().filter(framed.frame.select(SIZE >= _FRAME).to_series())
    starts = starts.filter(data.gather(starts) == 0)
    number = pl.zeros(len(starts), pl.Int64, eager=True)
    for at in range(1, _FRAME):
        number = number * 256 + data.gather(starts + at).cast(pl.Int64)
    return number.unique().to_list()


def _defaults(fields: Mapping[str, Missing], *, schema: pa.Schema) -> Defaults:
    """Return the defaults of missing fields in the types of the table. Raise a MismatchError if one does not fit."""
    defaults: dict[str, pa.Array] = {}
    for path, field in fields.items():
        if field.default is None:
            continue
        of_one = json.dumps({"type": "record", "name": "one", "fields": [{"name": "default", "type": field.kind}]})
        out = io.BytesIO()
        try:
            fastavro.schemaless_writer(out, fastavro.parse_schema(_as_stored(json.loads(of_one))), {"default": field.default})
        except Exception as error:  # fastavro raises what Python raises for a value of another type
            raise MismatchError(f"the default of `{path}` in the stream's schema is not a value of its type") from error
        wanted = pa.schema([pa.field("default", _type_at(schema, path))])
        decoded = AvroDecoder(of_one, schema=wanted).decode([out.getvalue()])
        if decoded.bad:
            raise MismatchError(f"the default of `{path}` in the stream's schema does not fit: {decoded.bad[0]}")
        defaults[path] = decoded.columns["default"]
    return defaults


def _type_at(schema: pa.Schema, path: str) -> pa.DataType:
    """Return the type of a field; items of lists and values of maps have the path of what holds them."""
    first, *rest = path.split(".")
    kind = schema.field(first).type
    for name in rest:
        while not pa.types.is_struct(kind):
            kind = kind.item_type if pa.types.is_map(kind) else kind.value_type
        kind = kind.field(name).type
    return kind


def _write_out(written: dict[str, Any]) -> dict[str, Any]:
    """Return the schema with every named type inlined, and without the keys that do not change the encoding."""
    expanded: dict[str, Any] = expand_schema(_as_stored(written))  # type: ignore[assignment]
    return _bare(expanded)  # type: ignore[no-any-return]


def _bare(kind: Any) -> Any:
    """Return the type without annotations, such as Kafka Connect's, and without fields that take no bytes."""
    if isinstance(kind, dict) and kind["type"] == "record":
        fields = [
            {"name": field["name"], "type": _bare(field["type"])} for field in kind["fields"] if field["type"] not in _NULL
        ]
        return {"type": "record", "name": kind["name"], "fields": fields}
    if isinstance(kind, dict) and not kind.keys() & _SAYING:
        return _bare(kind["type"])
    return _with_types(kind, _bare)


def _as_stored(kind: Any) -> Any:
    """Return the schema with the storage types of UUIDs (strings) and decimals (bytes).

    The bytes of a decimal show how it was encoded, and whether it has too many digits. A logical type that no column has, such
    as a time of day, becomes the number that stores it.
    """
    if isinstance(kind, dict) and "logicalType" in kind and (kind["logicalType"] == "uuid" or not is_logical(kind)):
        return _as_stored({key: value for key, value in kind.items() if key != "logicalType"})
    return _with_types(kind, _as_stored)


def _with_longs(kind: Any) -> Any:
    """Return the schema with every int, which is encoded as a long is, as a long: polars cuts ints off at 32 bits."""
    if kind == "int" or (isinstance(kind, dict) and kind["type"] == "int"):
        return "long"
    return _with_types(kind, _with_longs)


def _with_types(kind: Any, change: Callable[[Any], Any]) -> Any:
    """Return the type with the types in it changed."""
    if isinstance(kind, list):
        return [change(branch) for branch in kind]
    if not isinstance(kind, dict):
        return kind
    if kind["type"] == "record":
        return {**kind, "fields": [{**field, "type": change(field["type"])} for field in kind["fields"]]}
    return {key: change(value) if key in ("type", "items", "values") else value for key, value in kind.items()}
