"""Read single Avro messages, and say why a message can't be read."""

from __future__ import annotations

import io
import json
import re
from typing import Any

import fastavro
from fastavro.read import SchemaResolutionError

from headrace.plurals import count_that_are

_OTHERS = {b"Obj\x01": "an Avro container file", b"\xc3\x01": "Avro's single-object encoding"}
_NAME_NUMBER = re.compile(r"__\d+\b")
_TIME = re.compile(r'"logicalType":\s*"(local-)?(date|timestamp)')


class BadMessageError(Exception):
    """A message that can't be read. The text is the reason, as in the quarantine."""


class MessageReader:
    """Read messages of one schema, without a registry's prefix, into records of another if `reader` is set."""

    def __init__(self, written: dict[str, Any], reader: dict[str, Any] | None = None) -> None:
        self._written = fastavro.parse_schema(written)
        self._reader: Any = None if reader is None else fastavro.parse_schema(reader)
        self._has_times = bool(_TIME.search(json.dumps(written)))

    def read(self, value: bytes | None) -> Any:
        """Return the record. Raise a BadMessageError unless the message is one record, up to its last byte."""
        if not value:
            raise BadMessageError("empty value")
        try:
            return self._read(value)
        except BadMessageError as error:
            looks_like = next((what for start, what in _OTHERS.items() if value.startswith(start)), None)
            if looks_like is None:
                raise
            raise BadMessageError(f"{error}; it starts like {looks_like}, and a message is one record alone") from error

    def count_bytes(self, value: bytes) -> int | None:
        """Return how many bytes the record at the start of `value` has: -1 if there is none, None if `value` is too short."""
        stream = io.BytesIO(value)
        try:
            fastavro.schemaless_reader(stream, self._written, self._reader)
        except Exception:  # fastavro raises what Python raises for bytes that are no value
            return None if stream.tell() == len(value) else -1
        return stream.tell()

    def _read(self, value: bytes) -> Any:
        stream = io.BytesIO(value)
        try:
            record = fastavro.schemaless_reader(stream, self._written, self._reader)
        except SchemaResolutionError as error:
            null = self._find_null(value)
            what = f"`{null}` is null, and the stream's schema allows none" if null else _NAME_NUMBER.sub("", str(error))
            raise BadMessageError(f"no place for a value: {what}"[:300]) from error
        except (EOFError, IndexError) as error:
            if isinstance(error, IndexError) and stream.tell() < len(value):
                raise BadMessageError("malformed Avro: a union or an enum has no such branch") from error
            raise BadMessageError("truncated Avro: the message ends before its last field") from error
        except UnicodeDecodeError as error:
            raise BadMessageError(f"invalid UTF-8: {error.reason} at byte {error.start} of a string") from error
        except Exception as error:
            if self._has_times and isinstance(error, (OverflowError, ValueError)):
                raise BadMessageError("bad timestamp: outside the years 1 to 9999") from error
            raise BadMessageError(f"malformed Avro: {type(error).__name__}: {error}"[:300]) from error
        left = len(value) - stream.tell()
        if left:
            raise BadMessageError(f"malformed Avro: {count_that_are(left, 'byte')} left after the last field")
        return record

    def _find_null(self, value: bytes) -> str | None:
        try:
            written = fastavro.schemaless_reader(io.BytesIO(value), self._written, None)
        except Exception:  # the message is refused already, and the rest may be damaged too
            return None
        return _find_null(written, self._reader, path="")


def _find_null(value: object, kind: Any, *, path: str) -> str | None:
    """Return the path of the first null in a value whose type allows none."""
    if isinstance(kind, list):
        (kind, *others) = [branch for branch in kind if branch != "null"]
        if value is None or others:
            return None
    if value is None:
        return path
    inner: list[tuple[object, Any, str]] = []
    if isinstance(value, dict) and kind["type"] == "record":
        fields = ((field["name"], field["type"]) for field in kind["fields"])
        inner = [(value[name], of, f"{path}.{name}" if path else name) for name, of in fields if name in value]
    elif isinstance(value, dict):
        inner = [(item, kind["values"], path) for item in value.values()]
    elif isinstance(value, list):
        inner = [(item, kind["items"], path) for item in value]
    return next((null for item, of, at in inner if (null := _find_null(item, of, path=at))), None)
