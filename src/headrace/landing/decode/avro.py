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
from fastavro.schema import expand_schema

from headrace.landing.decode.borders import can_be_measured, keeps_bytes, measure, parts_of
from headrace.landing.decode.decoded import Block, Decoded
from headrace.landing.decode.fitting import fit, fit_values
from headrace.landing.records import (
    REFUSED,
    SIZE,
    Frames,
    RecordBatch,
    container_file,
    container_header,
    place,
)

_SAYING = {"logicalType", "items", "values", "symbols", "size"}
"""What makes of a type more than its name."""

_TIME = re.compile(r'"logicalType":\s*"(local-)?(date|timestamp)')


class AvroDecoder:
    """Decodes messages of one schema without a registry's prefix."""

    def __init__(self, avro_schema: str, *, schema: pa.Schema) -> None:
        written: dict[str, Any] = json.loads(avro_schema)
        self._names = [field["name"] for field in written["fields"]]
        self._schema = schema
        self._parsed = fastavro.parse_schema(_as_stored(written))
        self._has_times = bool(_TIME.search(avro_schema))
        kinds = [field["type"] for field in _write_out(written)["fields"]]
        self._bulk = all(can_be_measured(kind) for kind in kinds)
        kinds = kinds if self._bulk else []
        # Columns of a block are numbered, because a field may have any name.
        fields = [{"name": f"f{index}", "type": _with_longs(kind)} for index, kind in enumerate(kinds)]
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
            name: fit(column.combine_chunks(), self._schema.field(name).type, path=name)
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
            values_of_name = [record[name] for record in records]
            columns[name], refused = fit_values(values_of_name, self._schema.field(name).type, path=name)
            late.update(refused)
        return Decoded(columns, rows, bad).without(late)

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


def _write_out(written: dict[str, Any]) -> dict[str, Any]:
    """Gives back the schema with every named type written out where it is used, and without what says nothing of the bytes."""
    expanded: dict[str, Any] = expand_schema(_as_stored(written))  # type: ignore[assignment]
    return _bare(expanded)  # type: ignore[no-any-return]


def _bare(kind: Any) -> Any:
    """Gives back the type without notes, such as what it was in Kafka Connect."""
    if isinstance(kind, dict) and kind["type"] == "record":
        fields = [{"name": field["name"], "type": _bare(field["type"])} for field in kind["fields"]]
        return {"type": "record", "name": kind["name"], "fields": fields}
    if isinstance(kind, dict) and not kind.keys() & _SAYING:
        return _bare(kind["type"])
    return _with_types(kind, _bare)


def _as_stored(kind: Any) -> Any:
    """Gives back the schema with UUIDs as the strings, and decimals as the bytes, that they are stored as.

    Ids are strings; and bytes tell of a decimal how it was encoded, and whether it has more digits than it may.
    """
    if isinstance(kind, dict) and kind.get("logicalType") in ("uuid", "decimal"):
        return _as_stored({key: value for key, value in kind.items() if key != "logicalType"})
    return _with_types(kind, _as_stored)


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
