"""Format single values the same way on a terminal, in JSON and on a page."""

from __future__ import annotations

import base64
import json
import math
import sys
from collections.abc import Mapping
from datetime import datetime, timezone

from headrace.printable import printable

_BYTES_SHOWN = 60
_NESTED = (list, tuple, Mapping)
_MINUTE, _HOUR, _DAY = 60.0, 3_600.0, 86_400.0


def as_text(value: object, *, null: str) -> str:
    """Return a value as text: times in UTC, only the first bytes of binary values, lists with commas, other nested values as
    JSON."""
    if value is None:
        return null
    if isinstance(value, datetime):
        text = value.astimezone(timezone.utc) if value.tzinfo else value
        return text.isoformat(sep=" ", timespec="microseconds").replace("+00:00", "Z")
    if isinstance(value, bytes):
        return value[:_BYTES_SHOWN].decode("utf-8", errors="backslashreplace") + ("…" if len(value) > _BYTES_SHOWN else "")
    if isinstance(value, (list, tuple)) and not any(isinstance(item, _NESTED) for item in value):
        return ", ".join(as_text(item, null="null") for item in value)
    if isinstance(value, _NESTED):
        return nested_json(value)
    return str(value)


def nested_json(value: object) -> str:
    """Return a list or struct as JSON on one line."""
    return json.dumps(_name_floats(value), default=as_json, ensure_ascii=False)


def as_json(value: object) -> object:
    """Return a value without a JSON type as text, bytes in base64 and untruncated."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    return as_text(value, null="")


def print_json(value: object) -> None:
    """Print a value as JSON; floats that are not finite become the strings NaN, Infinity and -Infinity."""
    try:
        text = _to_json(value)
    except ValueError:
        text = _to_json(_name_floats(value))
    sys.stdout.write(f"{printable(text)}\n")


def _to_json(value: object) -> str:
    return json.dumps(value, default=as_json, indent=2, ensure_ascii=False, allow_nan=False)


def _name_floats(value: object) -> object:
    """Return a value with strings instead of floats that are not finite, at every depth."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, Mapping):
        return {name: _name_floats(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_name_floats(item) for item in value]
    return value


def is_number(arrow_type: str) -> bool:
    """Return whether an Arrow type is numeric; tables align such columns to the right."""
    return arrow_type.startswith(("int", "uint", "float", "double", "decimal"))


def short_seconds(seconds: float | None) -> str:
    """Return a time span in at most its two largest units; empty for None."""
    if seconds is None:
        return ""
    if seconds < _MINUTE:
        return f"{seconds:.0f} s"
    if seconds < _HOUR:
        return f"{seconds // _MINUTE:.0f} min {seconds % _MINUTE:.0f} s"
    if seconds < _DAY:
        return f"{seconds // _HOUR:.0f} h {seconds % _HOUR // _MINUTE:.0f} min"
    return f"{seconds // _DAY:,.0f} d {seconds % _DAY // _HOUR:.0f} h"
