"""Avro messages become Arrow columns: many at once where that is provably right, one by one where it is not.

The messages of a batch, joined, are one block of an Avro container file, which polars reads a hundred times faster than
message by message. Joined messages have no borders, so a truncated one could borrow bytes from the next. Hence the proof: each
decoded row is measured again. If every row's values need exactly as many bytes as its message had, every border was kept,
because a decoder never consumes less than the shortest encoding of what it gives back.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from typing import Any

import fastavro
import polars as pl
import pyarrow as pa

from headrace.landing.decode.arrays import build_or_split, plain
from headrace.landing.decode.decoded import Decoded

_SYNC = bytes(range(16))
_PLAIN_SIZES = {"null": 0, "boolean": 1, "float": 4, "double": 8}


class AvroDecoder:
    """Decodes messages of one schema without a registry's prefix."""

    def __init__(self, avro_schema: str, *, schema: pa.Schema) -> None:
        written: dict[str, Any] = json.loads(avro_schema)
        self._names = [field["name"] for field in written["fields"]]
        self._schema = schema
        self._parsed = fastavro.parse_schema(_without_uuids(written))
        self._bulk = all(_can_be_measured(field["type"]) for field in written["fields"])
        self._sizes = [(field["name"], field["type"]) for field in written["fields"]]
        self._header = _header(avro_schema)

    def decode(self, values: list[bytes | None]) -> Decoded:
        if self._bulk and all(values):
            columns = self._decode_block(values)  # type: ignore[arg-type]
            if columns is not None:
                return Decoded(columns, list(range(len(values))), {})
        return self._decode_each(values)

    def _decode_block(self, values: list[bytes]) -> Mapping[str, pa.Array] | None:
        """Gives back all messages' columns, or None if any of them is not what it should be."""
        body = b"".join(values)
        block = b"".join((self._header, _long(len(values)), _long(len(body)), body, _SYNC))
        try:
            frame = pl.read_avro(io.BytesIO(block))
        except (pl.exceptions.PolarsError, OverflowError, pl.exceptions.PanicException):
            return None
        if frame.height != len(values):
            return None
        measured = frame.select(pl.sum_horizontal(*(_size(pl.col(name), kind) for name, kind in self._sizes)).alias("size"))
        lengths = pl.Series("size", [len(value) for value in values], dtype=pl.Int64)
        if not (measured["size"].cast(pl.Int64) == lengths).all():
            return None
        table = frame.to_arrow(compat_level=pl.CompatLevel.oldest())
        return {name: table.column(name).combine_chunks().cast(self._schema.field(name).type) for name in self._names}

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
            columns = self._decode_block([value for index in rows if (value := values[index])])
            if columns is not None:
                return Decoded(columns, rows, bad)
        columns = {}
        late: dict[int, str] = {}
        for name in self._names:
            arrow_type = self._schema.field(name).type
            refused: list[int] = []
            values_of_name = [record[name] for record in records]
            columns[name] = build_or_split(plain(arrow_type), values_of_name, first=0, bad=refused)
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
            raise _BadMessageError("truncated Avro: the message ends before its last field") from error
        except UnicodeDecodeError as error:
            raise _BadMessageError(f"invalid UTF-8: {error.reason} at byte {error.start} of a string") from error
        except Exception as error:
            raise _BadMessageError(f"malformed Avro: {type(error).__name__}: {error}"[:300]) from error
        if stream.tell() != len(value):
            raise _BadMessageError(f"malformed Avro: {len(value) - stream.tell()} bytes are left after the last field")
        return record  # type: ignore[return-value]


class _BadMessageError(Exception):
    pass


def _without_uuids(kind: Any) -> Any:
    """Gives back the schema with UUIDs as the strings that they are stored as: ids are strings."""
    if isinstance(kind, list):
        return [_without_uuids(branch) for branch in kind]
    if not isinstance(kind, dict):
        return kind
    if kind.get("logicalType") == "uuid":
        return kind["type"]
    return {
        key: _without_uuids(value) if key in ("type", "fields", "items", "values") else value for key, value in kind.items()
    }


def _header(avro_schema: str) -> bytes:
    """Gives back the start of an Avro container file."""
    entries = {b"avro.schema": avro_schema.encode(), b"avro.codec": b"null"}
    pairs = b"".join(_long(len(key)) + key + _long(len(value)) + value for key, value in entries.items())
    return b"Obj\x01" + _long(len(entries)) + pairs + _long(0) + _SYNC


def _long(number: int) -> bytes:
    """Gives back Avro's encoding of a whole number that is not negative."""
    rest, out = number << 1, bytearray()
    while rest > 0x7F:
        out.append((rest & 0x7F) | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def _can_be_measured(kind: Any) -> bool:
    """Says whether a value's encoded size follows from the value, and polars reads its type as it is."""
    if isinstance(kind, dict):
        if kind["type"] == "record":
            return all(_can_be_measured(field["type"]) for field in kind["fields"])
        return kind["type"] in ("int", "long", "string") and kind.get("logicalType") in (
            None,
            "date",
            "uuid",
            "timestamp-millis",
            "timestamp-micros",
        )
    if isinstance(kind, list):
        return len(kind) == 2 and "null" in kind and all(_can_be_measured(branch) for branch in kind)
    return kind in (*_PLAIN_SIZES, "int", "long", "string", "bytes")


def _size(column: pl.Expr, kind: Any) -> pl.Expr:
    """Gives back the number of bytes of the shortest encoding of each value."""
    if isinstance(kind, list):
        inner = next(branch for branch in kind if branch != "null")
        return 1 + pl.when(column.is_null()).then(0).otherwise(_size(column, inner))
    if isinstance(kind, dict) and kind["type"] == "record":
        return pl.sum_horizontal(*(_size(column.struct.field(field["name"]), field["type"]) for field in kind["fields"]))
    name = kind["type"] if isinstance(kind, dict) else kind
    if name in _PLAIN_SIZES:
        return pl.lit(_PLAIN_SIZES[name])
    if name == "string":
        return _varint(column.str.len_bytes().cast(pl.Int64)) + column.str.len_bytes().cast(pl.Int64)
    if name == "bytes":
        return _varint(column.bin.size().cast(pl.Int64)) + column.bin.size().cast(pl.Int64)
    number = column.cast(pl.Int64)
    if isinstance(kind, dict) and kind.get("logicalType") == "timestamp-millis":
        number = column.dt.timestamp("ms")
    return _varint(pl.when(number >= 0).then(number).otherwise(-(number + 1)))


def _varint(magnitude: pl.Expr) -> pl.Expr:
    """Gives back the length of the zigzag variable-length encoding of `magnitude` (for n < 0: of -n - 1)."""
    return 1 + pl.sum_horizontal(*((magnitude >= (1 << (7 * extra - 1))).cast(pl.Int64) for extra in range(1, 10)))
