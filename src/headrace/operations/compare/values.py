"""When a value of Postgres and a value of the lake are the same: exactly, by the type that Postgres gives it."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from datetime import date, datetime, time, timezone
from decimal import Decimal, InvalidOperation
from typing import Any

Plain = Callable[[Any], object]

ARRAY = "_"
"""How Postgres begins the name of an array's type."""


def is_same(left: object, right: object, *, kind: str) -> bool:
    """Return whether a value of Postgres and one of the lake are the same value of a type of Postgres."""
    if left is right or (type(left) is type(right) and type(left) in (str, int, bytes) and left == right):
        return True
    if left is None or right is None:
        return False
    one, other = plain(left, kind=kind), plain(right, kind=kind)
    return type(one) is type(other) and one == other


def plain(value: object, *, kind: str) -> object:
    """Return a value in the one form in which equal values of a type are equal and unequal ones are not.

    What can't be a value of the type stays as it is, and so is equal to nothing of it.
    """
    if value is None:
        return None
    if kind.startswith(ARRAY):
        each = kind[len(ARRAY) :]
        return tuple((type(found).__name__, found) for found in (plain(one, kind=each) for one in _listed(value)))
    make = _PLAIN.get(kind)
    if make is None:
        return str(value)
    try:
        return make(value)
    except (TypeError, ValueError, InvalidOperation, KeyError):
        return value


def _listed(value: object) -> list[object]:
    return list(value) if isinstance(value, (list, tuple)) else [value]


def _number(value: Any) -> object:
    if isinstance(value, bool):
        return value
    if isinstance(value, dict):  # as Debezium writes a number without a fixed scale
        value = Decimal(int.from_bytes(value["value"], "big", signed=True)).scaleb(-int(value["scale"]))
    found = value if isinstance(value, Decimal) else Decimal(str(value))
    return found if found.is_finite() else str(found)


def _single(value: Any) -> object:
    return _double(struct.unpack("f", struct.pack("f", value))[0])


def _double(value: Any) -> object:
    found = float(value)
    return "NaN" if found != found else found


def _moment(value: Any) -> object:
    if isinstance(value, datetime):
        return value.astimezone(timezone.utc).replace(tzinfo=None) if value.tzinfo else value
    return value


def _day(value: Any) -> object:
    return value.date() if isinstance(value, datetime) else date.fromisoformat(value) if isinstance(value, str) else value


def _time(value: Any) -> object:
    return time.fromisoformat(value) if isinstance(value, str) else value


def _document(value: Any) -> object:
    """Return JSON with its names in order and its numbers to the last digit, however they are spelled."""
    text = value if isinstance(value, str) else bytes(value).decode()
    found = json.loads(text, parse_float=_spelled, parse_int=_spelled, parse_constant=_spelled)
    return json.dumps(found, sort_keys=True, ensure_ascii=False)


def _spelled(number: str) -> list[object]:
    return ["number", str(Decimal(number).normalize())]


def _bytes(value: Any) -> object:
    return bytes(value)


def _whole(value: Any) -> object:
    return value if isinstance(value, bool) else int(value)


_PLAIN: dict[str, Plain] = {
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
