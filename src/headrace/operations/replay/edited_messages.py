"""Export refused messages as JSON lines to edit by hand, and read them back.

A line has `stream`, `partition` and `offset`, and one of `text` (UTF-8), `base64` (any bytes) and `event` (a JSON object, which
is encoded in the stream's format). `timestamp` and `reason` are for information.
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
"""Encodes an event in the format of a stream."""

_VALUES = ("text", "base64", "event")
_NAMES = frozenset({"stream", "partition", "offset", "timestamp", "reason", *_VALUES})


def to_lines(rows: pa.Table) -> list[str]:
    """Return rows of the quarantine as JSON lines."""
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
    """Return the bytes of edited messages by stream. Raise a SettingsError with the line number of an invalid line."""
    messages: dict[str, dict[Coordinates, bytes]] = {}
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(
            f"can't read the file: {error}", where=str(path), next_step="Choose a file of JSON lines."
        ) from None
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        stream, at, value = _read_line(line, where=f"{path}:{number}", encode=encode)
        if at in messages.setdefault(stream, {}):
            raise _invalid("the file has the same message twice", f"{path}:{number}")
        messages[stream][at] = value
    return messages


def _as_text(value: bytes) -> dict[str, object]:
    try:
        return {"text": value.decode("utf-8")}
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode("ascii")}


def _read_line(line: str, *, where: str, encode: Encode) -> tuple[str, Coordinates, bytes]:
    try:
        fields = json.loads(line)
    except ValueError as error:
        raise _invalid(f"the line is not JSON: {error}", where) from None
    if not isinstance(fields, dict) or not {"stream", "partition", "offset"} <= fields.keys():
        raise _invalid("the line is not an object with stream, partition and offset", where)
    unknown = sorted(fields.keys() - _NAMES)
    if unknown:
        raise _invalid(f"unknown key {', '.join(unknown)}; a line has the keys {', '.join(sorted(_NAMES))}", where)
    given = [name for name in _VALUES if name in fields]
    if len(given) != 1:
        raise _invalid("the line needs exactly one of text, base64 and event", where)
    try:
        at = (int(fields["partition"]), int(fields["offset"]))
        return str(fields["stream"]), at, _value(str(fields["stream"]), given[0], fields[given[0]], encode)
    except (TypeError, ValueError, binascii.Error) as error:
        raise _invalid(f"can't encode {given[0]}: {error}", where) from None


def _value(stream: str, name: str, value: object, encode: Encode) -> bytes:
    if name == "event":
        if not isinstance(value, dict):
            raise TypeError("an event must be an object")
        return encode(stream, value)
    if not isinstance(value, str):
        raise TypeError("the value is not text")
    return value.encode("utf-8") if name == "text" else base64.b64decode(value, validate=True)


def _invalid(what: str, where: str) -> SettingsError:
    return SettingsError(what, where=where, next_step="Nothing was changed. Fix the line, then run the same command again.")
