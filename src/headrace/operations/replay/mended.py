"""Refused messages as lines of JSON: written to be mended by hand, and read back.

A line has `stream`, `partition` and `offset`, and one of `text` (UTF-8), `base64` (any bytes) and `event` (a JSON object, which
is encoded as the stream has it). `timestamp` and `reason` are there to be read.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Mapping
from pathlib import Path

import pyarrow as pa

from headrace.errors import SettingsError
from headrace.operations.replay.target import Coordinates

Encode = Callable[[str, Mapping[str, object]], bytes]
"""Returns an event in the format of a stream."""

_VALUES = ("text", "base64", "event")
_NAMES = frozenset({"stream", "partition", "offset", "timestamp", "reason", *_VALUES})


def to_lines(rows: pa.Table) -> list[str]:
    """Return rows of the quarantine as lines."""
    lines = []
    for row in rows.to_pylist():
        value = row["original_bytes"]
        line: dict[str, object] = {name: row[name] for name in ("stream", "partition", "offset")}
        line |= {"timestamp": row["timestamp"] and row["timestamp"].isoformat(), "reason": row["reason"]}
        if value is not None:
            line |= _as_text(value)
        lines.append(json.dumps(line, ensure_ascii=False))
    return lines


def read_lines(path: Path, *, encode: Encode) -> dict[str, dict[Coordinates, bytes]]:
    """Return the bytes of mended messages by stream; a line that can't be is a SettingsError that names it."""
    found: dict[str, dict[Coordinates, bytes]] = {}
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"it can't be read: {error}", where=str(path), next_step="Name a file of JSON lines.") from None
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        stream, at, value = _read_line(line, where=f"{path}:{number}", encode=encode)
        if at in found.setdefault(stream, {}):
            raise _wrong("the same message stands in the file twice", f"{path}:{number}")
        found[stream][at] = value
    return found


def _as_text(value: bytes) -> dict[str, object]:
    try:
        return {"text": value.decode("utf-8")}
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode("ascii")}


def _read_line(line: str, *, where: str, encode: Encode) -> tuple[str, Coordinates, bytes]:
    try:
        told = json.loads(line)
    except ValueError as error:
        raise _wrong(f"the line is not JSON: {error}", where) from None
    if not isinstance(told, dict) or not {"stream", "partition", "offset"} <= told.keys():
        raise _wrong("the line is no object with stream, partition and offset", where)
    unknown = sorted(told.keys() - _NAMES)
    if unknown:
        raise _wrong(f"{', '.join(unknown)} is not known; a line has {', '.join(sorted(_NAMES))}", where)
    given = [name for name in _VALUES if name in told]
    if len(given) != 1:
        raise _wrong("the line needs one of text, base64 and event", where)
    try:
        at = (int(told["partition"]), int(told["offset"]))
        return str(told["stream"]), at, _value(str(told["stream"]), given[0], told[given[0]], encode)
    except (TypeError, ValueError, binascii.Error) as error:
        raise _wrong(f"{given[0]} can't be written as bytes: {error}", where) from None


def _value(stream: str, name: str, value: object, encode: Encode) -> bytes:
    if name == "event":
        if not isinstance(value, dict):
            raise TypeError("an event is an object")
        return encode(stream, value)
    if not isinstance(value, str):
        raise TypeError("it is not text")
    return value.encode("utf-8") if name == "text" else base64.b64decode(value, validate=True)


def _wrong(what: str, where: str) -> SettingsError:
    return SettingsError(what, where=where, next_step="Nothing was changed. Mend the line, then run the same command again.")
