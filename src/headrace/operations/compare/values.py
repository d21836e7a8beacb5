"""Compare a value of Postgres with a value of the lake exactly, by its Postgres type."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from datetime import date, datetime, time, timezone
from decimal import Decimal, InvalidOperation
from typing import Any

Canonical = Callable[[Any], object]

ARRAY = "_"
"""The prefix of array types' names in Postgres."""


def is_same(left: object, right: object, *, kind: str) -> bool:
    """Return whether a value of Postgres and one of the lake are equal as values of the Postgres type `kind`."""
    if left is right or (type(left) is type(right) and type(left) in (str, int, bytes) and left == right):
        return True
    if left is None or right is None:
        return False
    left, right = canonical(left, kind=kind), canonical(right, kind=kind)
    return type(left) is type(right) and left == right


def canonical(value: object, *, kind: str) -> object:
    """Return a value in canonical form: two values of a type are equal if and only if their canonical forms are.

    A value that is not of the type is returned unchanged, so that it equals no value of the type.
    """
    if value is None:
        return None
    if kind.startswith(ARRAY):
        item_kind = kind[len(ARRAY) :]
        items = (canonical(item, kind=item_kind) for item in _listed(value))
        return tuple((type(item).__name__, item) for item in items)
    convert = _CANONICAL.get(kind)
    if convert is None:
        return str(value)
    try:
        return convert(value)
    except (TypeError, ValueError, InvalidOperation, KeyError):
        return value


def _listed(value: object) -> list[object]:
    return list(value) if isinstance(value, (list, tuple)) else [value]


def _number(value: Any) -> object:
    if isinstance(value, bool):
        return value
    if isinstance(value, dict):  # Debezium's form of a number without a fixed scale
        value = Decimal(int.from_bytes(value["value"], "big", signed=True)).scaleb(-int(value["scale"]))
    number = value if isinstance(value, Decimal) else Decimal(str(value))
    return number if number.is_finite() else str(number)


def _single(value: Any) -> object:
    return _double(struct.unpack("f", struct.pack("f", value))[0])


def _double(value: Any) -> object:
    number = float(value)
    return "NaN" if number != number else number


def _moment(value: Any) -> object:
    if isinstance(value, datetime):
        return value.astimezone(timezone.utc).replace(tzinfo=None) if value.tzinfo else value
    return value


def _day(value: Any) -> object:
    return value.date() if isinstance(value, datetime) else date.fromisoformat(value) if isinstance(value, str) else value


def _time(value: Any) -> object:
    return time.fromisoformat(value) if isinstance(value, str) else value


def _document(value: Any) -> object:
    """Return JSON with sorted names and exact, normalised numbers."""
    text = value if isinstance(value, str) else bytes(value).decode()
    document = json.loads(text, parse_float=_spelled, parse_int=_spelled, parse_constant=_spelled)
    return json.dumps(document, sort_keys=True, ensure_ascii=False)


def _spelled(number: str) -> list[object]:
    return ["number", str(Decimal(number).normalize())]


def _bytes(value: Any) -> object:
    return bytes(value)


def _whole(value: Any) -> object:
    return value if isinstance(value, bool) else int(value)


_CANONICAL: dict[str, Canonical] = {
    **dict.fromkeys(("int2", "int4", "int8", "oid"), _whole),
    **dict.fromkeys(("timestamp", "timestamptz"), _moment),
    **dict.fromkeys(("json", "jsonb"), _document),
    "bool": lambda value: value,
    "numeric": _number,
    "float4": _single,
    "float8": _double,
    "date": _day,
    "time": _time,
    "bytea": _bytes,
}
