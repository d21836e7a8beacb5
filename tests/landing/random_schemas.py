"""Random columns with nested nullability, random values of them, and the values as JSON and as Avro messages."""

from __future__ import annotations

import base64
import io
import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from itertools import count
from random import Random
from typing import Any

import fastavro

from headrace.spec.model.types import Array, Column, ColumnType, Map, Primitive, PrimitiveName, Struct
from headrace.spec.model.types import Decimal as DecimalType

UTC = timezone.utc
_DEPTH = 3
_PRIMITIVES: tuple[PrimitiveName, ...] = (
    "boolean",
    "int",
    "long",
    "float",
    "double",
    "date",
    "timestamp",
    "timestamp_ntz",
    "string",
    "binary",
)
_AVRO: dict[str, Any] = {
    "boolean": "boolean",
    "int": "int",
    "long": "long",
    "float": "float",
    "double": "double",
    "string": "string",
    "binary": "bytes",
    "date": {"type": "int", "logicalType": "date"},
    "timestamp": {"type": "long", "logicalType": "timestamp-micros"},
    "timestamp_ntz": {"type": "long", "logicalType": "local-timestamp-micros"},
}
_IN_BLOCKS: tuple[PrimitiveName, ...] = ("boolean", "int", "long", "float", "double", "date", "timestamp", "string", "binary")
"""The types, beside structs and arrays of them, that Avro block decoding supports."""


@dataclass(frozen=True)
class RandomTypes:
    """Draws column types. `in_blocks` excludes types that Avro block decoding does not support."""

    random: Random
    in_blocks: bool = False

    def columns(self, number: int, *, depth: int = 0) -> tuple[Column, ...]:
        return tuple(
            Column(f"c{index}", self.type(depth=depth), required=self.random.random() < 0.5) for index in range(number)
        )

    def type(self, *, depth: int, nested: bool = True) -> ColumnType:
        """Draw a type. On the first level, most types are nested."""
        drawn = self.random.random()
        if nested and depth < _DEPTH and drawn < (0.8 if depth == 0 else 0.45):
            if drawn < (0.45 if depth == 0 else 0.25):
                return Struct(self.columns(self.random.randint(1, 3), depth=depth + 1))
            if self.in_blocks:
                return Array(self.type(depth=depth + 1, nested=False))
            inner = self.type(depth=depth + 1)
            return Array(inner) if self.random.random() < 0.5 else Map(inner)
        if not self.in_blocks and self.random.random() < 0.15:
            precision = self.random.randint(1, 38)
            return DecimalType(precision, self.random.randint(0, precision))
        return Primitive(self.random.choice(_IN_BLOCKS if self.in_blocks else _PRIMITIVES))


def random_row(columns: tuple[Column, ...], random: Random) -> dict[str, Any]:
    """Draw a value for each column; a third of the optional ones are null. Maps are dictionaries."""
    return {
        column.name: None if not column.required and random.random() < 0.34 else random_value(column.type, random)
        for column in columns
    }


def random_value(kind: ColumnType, random: Random) -> Any:
    if isinstance(kind, Struct):
        return random_row(kind.columns, random)
    if isinstance(kind, Array):
        return [_element(kind.element, random) for _ in range(random.choice((0, 1, 1, 2, 3)))]
    if isinstance(kind, Map):
        return {f"k{key}": _element(kind.value, random) for key in range(random.choice((0, 1, 1, 2)))}
    if isinstance(kind, DecimalType):
        digits = random.randint(0, 10**kind.precision - 1) * random.choice((1, -1))
        return Decimal((int(digits < 0), tuple(map(int, str(abs(digits)))), -kind.scale))  # arithmetic would round it
    return _primitive(kind.name, random)


def _element(kind: ColumnType, random: Random) -> Any:
    return None if random.random() < 0.3 else random_value(kind, random)


def _primitive(name: PrimitiveName, random: Random) -> Any:
    if name == "boolean":
        return random.random() < 0.5
    if name in ("int", "long"):
        most = 2**31 if name == "int" else 2**63
        return random.choice((0, -1, most - 1, -most, random.randrange(-most, most)))
    if name == "float":
        return struct.unpack("f", struct.pack("f", random.choice((0.0, -1.5, random.gauss(0, 1e9)))))[0]
    if name == "double":
        return random.choice((0.0, 0.1, random.gauss(0, 1e200)))
    if name == "date":
        return date(1, 1, 1) + timedelta(days=random.choice((0, random.randrange(3_600_000))))
    if name in ("timestamp", "timestamp_ntz"):
        moment = datetime(1678, 1, 1, tzinfo=UTC) + timedelta(microseconds=random.randrange(580 * 365 * 86_400_000_000))
        return moment if name == "timestamp" else moment.replace(tzinfo=None)
    text = "".join(random.choices('aZ0 "\\/é♥𝄞\n', k=random.randint(0, 6)))
    return text if name == "string" else text.encode()


def as_json(columns: tuple[Column, ...], row: dict[str, Any], random: Random) -> bytes:
    """Return a message. A null of an optional field is written or omitted."""
    return json.dumps(_json_struct(columns, row, random)).encode()


def _json_struct(columns: tuple[Column, ...], row: dict[str, Any], random: Random) -> dict[str, Any]:
    return {
        column.name: _json(column.type, row[column.name], random)
        for column in columns
        if row[column.name] is not None or random.random() < 0.5
    }


def _json(kind: ColumnType, value: Any, random: Random) -> Any:
    if value is None:
        return None
    if isinstance(kind, Struct):
        return _json_struct(kind.columns, value, random)
    if isinstance(kind, Array):
        return [_json(kind.element, item, random) for item in value]
    if isinstance(kind, Map):
        return {key: _json(kind.value, item, random) for key, item in value.items()}
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, date):
        return value.isoformat()
    return base64.b64encode(value).decode() if isinstance(value, bytes) else value


def avro_schema(columns: tuple[Column, ...]) -> str:
    return json.dumps(_avro_record(columns, count()))


def _avro_record(columns: tuple[Column, ...], names: Iterator[int]) -> dict[str, Any]:
    name = f"r{next(names)}"
    fields = [{"name": column.name, "type": _optional(column, names)} for column in columns]
    return {"type": "record", "name": name, "fields": fields}


def _optional(column: Column, names: Iterator[int]) -> Any:
    """Return the column's type; for optional columns, null is alternately the first and the second branch."""
    kind = _avro(column.type, names)
    if column.required:
        return kind
    return ["null", kind] if next(names) % 2 else [kind, "null"]


def _avro(kind: ColumnType, names: Iterator[int]) -> Any:
    if isinstance(kind, Struct):
        return _avro_record(kind.columns, names)
    if isinstance(kind, Array):
        return {"type": "array", "items": ["null", _avro(kind.element, names)]}
    if isinstance(kind, Map):
        return {"type": "map", "values": ["null", _avro(kind.value, names)]}
    if isinstance(kind, DecimalType):
        return {"type": "bytes", "logicalType": "decimal", "precision": kind.precision, "scale": kind.scale}
    return _AVRO[kind.name]


def as_avro(schema: str, rows: list[dict[str, Any]]) -> list[bytes]:
    parsed = fastavro.parse_schema(json.loads(schema))
    messages = []
    for row in rows:
        stream = io.BytesIO()
        fastavro.schemaless_writer(stream, parsed, row)
        messages.append(stream.getvalue())
    return messages


def as_arrow_row(columns: tuple[Column, ...], row: dict[str, Any]) -> dict[str, Any]:
    """Return the row for pyarrow: a map is a list of pairs."""
    return {column.name: _as_arrow(column.type, row[column.name]) for column in columns}


def _as_arrow(kind: ColumnType, value: Any) -> Any:
    if value is None:
        return None
    if isinstance(kind, Struct):
        return as_arrow_row(kind.columns, value)
    if isinstance(kind, Array):
        return [_as_arrow(kind.element, item) for item in value]
    if isinstance(kind, Map):
        return [(key, _as_arrow(kind.value, item)) for key, item in value.items()]
    return value


def required_paths(columns: tuple[Column, ...], row: dict[str, Any]) -> list[tuple[str, ...]]:
    """Return the path of each required field that the row has inside structs only."""
    paths: list[tuple[str, ...]] = []
    for column in columns:
        if column.required:
            paths.append((column.name,))
        if isinstance(column.type, Struct) and row[column.name] is not None:
            paths += [(column.name, *path) for path in required_paths(column.type.columns, row[column.name])]
    return paths


def without(row: dict[str, Any], path: tuple[str, ...]) -> dict[str, Any]:
    """Return the row with null at this path."""
    name, *rest = path
    return {**row, name: without(row[name], tuple(rest)) if rest else None}
