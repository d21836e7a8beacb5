"""Avro messages become Arrow columns: many at once where that is provably right, one by one where it is not.

Record batches as Kafka stores them, and messages that are joined, are a block of an Avro container file, which polars reads a
hundred times faster than message by message. A block has no borders, so a truncated message could borrow bytes from the next;
`borders.py` has the proof that none did. What else polars is kind to is looked at too: an int past 32 bits (read as a long), a
time outside the calendar.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import fastavro
import polars as pl
import pyarrow as pa

from headrace.landing.decode.arrays import Builder, decimals, in_calendar, plain
from headrace.landing.decode.borders import can_be_measured, keeps_bytes, measure, parts_of
from headrace.landing.decode.decoded import Block, Decoded
from headrace.landing.records import (
    REFUSED,
    SIZE,
    Frames,
    RecordBatch,
    container_file,
    container_header,
    place,
)

_TIME = re.compile(r'"logicalType":\s*"(local-)?(date|timestamp)')


class AvroDecoder:
    """Decodes messages of one schema without a registry's prefix."""

    def __init__(self, avro_schema: str, *, schema: pa.Schema) -> None:
        written: dict[str, Any] = json.loads(avro_schema)
        self._names = [field["name"] for field in written["fields"]]
        self._schema = schema
        self._parsed = fastavro.parse_schema(_without_uuids(written))
        self._has_times = bool(_TIME.search(avro_schema))
        self._bulk = all(can_be_measured(field["type"]) for field in written["fields"])
        # Columns of a block are numbered, because a field may have any name.
        fields = [{"name": f"f{index}", "type": _with_longs(field["type"])} for index, field in enumerate(written["fields"])]
        kinds = [field["type"] for field in written["fields"]] if self._bulk else []
        self._parts = [part for index, kind in enumerate(kinds) for part in parts_of(pl.col(f"f{index}"), kind)]
        self._header = container_header(json.dumps({"type": "record", "name": written["name"], "fields": fields}))
        self._frames = Frames(fields)
        self._numbered = [field["name"] for field in fields]

    def decode(self, values: list[bytes | None]) -> Decoded:
        if self._bulk and all(values):
            columns = self._decode_values(values)  # type: ignore[arg-type]
            if columns is not None:
                return Decoded(columns, range(len(values)), {})
        return self._decode_each(values)

    def decode_block(self, batches: Sequence[RecordBatch]) -> Block | None:
        framed = self._frames.read(batches) if self._bulk else None
        if framed is None:
            return None
        try:
            if not framed.frame.select((measure(self._parts) == SIZE).all()).item():
                return None
            if not keeps_bytes(framed.frame, framed.value_starts, framed.block, self._parts):
                return None
            frame, places = place(framed.frame, batches)
            return Block(self._columns(frame), places)
        except REFUSED:
            return None

    def _decode_values(self, values: list[bytes]) -> Mapping[str, pa.Array] | None:
        """Gives back all messages' columns, or None if any of them is not what it should be."""
        sizes = pl.Series([len(value) for value in values], dtype=pl.Int64)
        block, start = container_file(self._header, len(values), int(sizes.sum()), values)
        try:
            frame = pl.read_avro(io.BytesIO(block))
            if frame.height != len(values) or not (frame.select(measure(self._parts)).to_series() == sizes).all():
                return None
            starts = sizes.cum_sum() - sizes + start
            return self._columns(frame) if keeps_bytes(frame, lambda: starts, block, self._parts) else None
        except REFUSED:
            return None

    def _columns(self, frame: pl.DataFrame) -> Mapping[str, pa.Array]:
        """Gives back a block's columns in the types of the table; what doesn't fit raises."""
        table = frame.select(self._numbered).to_arrow(compat_level=pl.CompatLevel.oldest())
        return {
            name: _fit(column.combine_chunks(), self._schema.field(name).type)
            for name, column in zip(self._names, table.columns, strict=True)
        }

    def _decode_each(self, values: list[bytes | None]) -> Decoded:
        rows: list[int] = []
        records: list[dict[str, object]] = []
        bad: dict[int, str] = {}
        for index, value in enumerate(values):
            try:
                records.append(self._decode_one(value))
                rows.append(index)
            except _BadMessageError as refusal:
                bad[index] = str(refusal)
        if bad and self._bulk and rows:
            columns = self._decode_values([value for index in rows if (value := values[index])])
            if columns is not None:
                return Decoded(columns, rows, bad)
        columns = {}
        late: dict[int, str] = {}
        for name in self._names:
            arrow_type = self._schema.field(name).type
            refused: list[int] = []
            values_of_name = [record[name] for record in records]
            columns[name] = _builder(arrow_type)(values_of_name, refused)
            late.update(dict.fromkeys(refused, f"overflow: not a value of {arrow_type} - at `{name}`"))
        if late:
            mask = pa.array([index not in late for index in range(len(rows))])
            columns = {name: array.filter(mask) for name, array in columns.items()}
            bad.update({rows[index]: reason for index, reason in late.items()})
            rows = [row for index, row in enumerate(rows) if index not in late]
        return Decoded(columns, rows, bad)

    def _decode_one(self, value: bytes | None) -> dict[str, object]:
        if not value:
            raise _BadMessageError("empty value")
        stream = io.BytesIO(value)
        try:
            record = fastavro.schemaless_reader(stream, self._parsed, None)
        except (EOFError, IndexError) as error:
            if isinstance(error, IndexError) and stream.tell() < len(value):
                raise _BadMessageError("malformed Avro: a union or an enum has no such branch") from error
            raise _BadMessageError("truncated Avro: the message ends before its last field") from error
        except UnicodeDecodeError as error:
            raise _BadMessageError(f"invalid UTF-8: {error.reason} at byte {error.start} of a string") from error
        except Exception as error:
            if self._has_times and isinstance(error, (OverflowError, ValueError)):
                raise _BadMessageError("bad timestamp: outside the years 1 to 9999") from error
            raise _BadMessageError(f"malformed Avro: {type(error).__name__}: {error}"[:300]) from error
        if stream.tell() != len(value):
            raise _BadMessageError(f"malformed Avro: {len(value) - stream.tell()} bytes are left after the last field")
        return record  # type: ignore[return-value]


class _BadMessageError(Exception):
    pass


def _without_uuids(kind: Any) -> Any:
    """Gives back the schema with UUIDs as the strings that they are stored as: ids are strings."""
    if isinstance(kind, dict) and kind.get("logicalType") == "uuid":
        return kind["type"]
    return _with_types(kind, _without_uuids)


def _with_longs(kind: Any) -> Any:
    """Gives back the schema with every int, which is encoded as a long is, as a long: polars cuts ints off at 32 bits."""
    if kind == "int" or (isinstance(kind, dict) and kind["type"] == "int"):
        return "long"
    return _with_types(kind, _with_longs)


def _with_types(kind: Any, change: Callable[[Any], Any]) -> Any:
    """Gives back the type with the types in it changed."""
    if isinstance(kind, list):
        return [change(branch) for branch in kind]
    if not isinstance(kind, dict):
        return kind
    if kind["type"] == "record":
        return {**kind, "fields": [{**field, "type": change(field["type"])} for field in kind["fields"]]}
    return {key: change(value) if key in ("type", "items", "values") else value for key, value in kind.items()}


def _fit(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    """Gives back the array in the table's type; what does not fit raises. Fields of structs are found by their names."""
    if pa.types.is_struct(wanted):
        found = dict(zip((field.name for field in array.type), array.flatten(), strict=True))
        children = [
            _fit(found[field.name], field.type) if field.name in found else pa.nulls(len(array), field.type) for field in wanted
        ]
        return pa.StructArray.from_arrays(children, fields=list(wanted), mask=array.is_null())
    if pa.types.is_date(wanted) and pa.types.is_integer(array.type):
        array = array.cast(pa.int32())
    array = array.cast(wanted)
    return in_calendar(array) if pa.types.is_temporal(wanted) else array


def _builder(arrow_type: pa.DataType) -> Builder:
    return decimals(arrow_type) if pa.types.is_decimal(arrow_type) else plain(arrow_type)
