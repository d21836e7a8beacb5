"""Convert Trino's JSON values to Arrow, by type."""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timezone
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa

_MICROSECONDS = 6


@dataclass(frozen=True)
class _Kind:
    """An Arrow type, and the function that converts a value that is not null to it."""

    arrow: pa.DataType
    read: Callable[[Any], object]


def make_column(signature: dict[str, Any], values: Sequence[Any]) -> pa.Array:
    """Return an Arrow column for a type signature of Trino."""
    kind = _kind_of(signature)
    return pa.array([None if value is None else kind.read(value) for value in values], kind.arrow)


def _kind_of(signature: dict[str, Any]) -> _Kind:
    name: str = signature["rawType"]
    arguments = [argument["value"] for argument in signature["arguments"]]
    if name in _PLAIN:
        return _PLAIN[name]
    if name == "decimal":
        return _Kind(pa.decimal128(*arguments), Decimal)
    if name.startswith(("timestamp", "time")):
        return _time_kind(name, precision=arguments[0] if arguments else 3)
    if name == "array":
        element = _kind_of(arguments[0])
        return _Kind(pa.list_(element.arrow), lambda values: [_read(element, value) for value in values])
    if name == "map":
        key, item = map(_kind_of, arguments)
        return _Kind(
            pa.map_(key.arrow, item.arrow),
            lambda pairs: [(_read_key(key, name), _read(item, value)) for name, value in pairs.items()],
        )
    if name == "row":
        return _row_kind(arguments)
    return _TEXT  # varchar, char, uuid, json, intervals: as Trino writes them


def _row_kind(fields: Sequence[dict[str, Any]]) -> _Kind:
    """Return the type of a row; a field without a name is named after its position."""
    names = [(field.get("fieldName") or {}).get("name") or f"field{place}" for place, field in enumerate(fields)]
    kinds = [_kind_of(field["typeSignature"]) for field in fields]
    return _Kind(
        pa.struct(list(zip(names, (kind.arrow for kind in kinds), strict=True))),
        lambda row: {name: _read(kind, value) for name, kind, value in zip(names, kinds, row, strict=True)},
    )


def _time_kind(name: str, *, precision: int) -> _Kind:
    if precision > _MICROSECONDS:
        return _TEXT  # Python's times have microseconds
    if name == "timestamp with time zone":
        return _Kind(pa.timestamp("us", "UTC"), _read_instant)
    if name == "timestamp":
        return _Kind(pa.timestamp("us"), datetime.fromisoformat)
    return _Kind(pa.time64("us"), time.fromisoformat) if name == "time" else _TEXT


def _read_instant(written: str) -> datetime:
    """Return the time of a text such as `2026-01-31 12:30:00.123456 UTC`, with any zone name or offset."""
    local, _, zone = written.rpartition(" ")
    if zone[0] in "+-":
        return datetime.fromisoformat(f"{local}{zone}").astimezone(timezone.utc)
    return datetime.fromisoformat(local).replace(tzinfo=ZoneInfo(zone)).astimezone(timezone.utc)


def _read(kind: _Kind, value: Any) -> object:
    return None if value is None else kind.read(value)


def _read_key(kind: _Kind, written: str) -> object:
    """Return a map's key, which JSON always holds as text."""
    if pa.types.is_integer(kind.arrow):
        return int(written)
    if pa.types.is_boolean(kind.arrow):
        return written == "true"
    return kind.read(written)


def _same(value: object) -> object:
    return value


_TEXT = _Kind(pa.string(), str)
_PLAIN = {
    "boolean": _Kind(pa.bool_(), _same),
    "tinyint": _Kind(pa.int8(), _same),
    "smallint": _Kind(pa.int16(), _same),
    "integer": _Kind(pa.int32(), _same),
    "bigint": _Kind(pa.int64(), _same),
    "real": _Kind(pa.float32(), float),  # NaN and the infinities come as text
    "double": _Kind(pa.float64(), float),
    "date": _Kind(pa.date32(), date.fromisoformat),
    "varbinary": _Kind(pa.binary(), base64.b64decode),
    "unknown": _Kind(pa.null(), _same),
}
