"""The two forms of a log line: text for people, JSON for programs. Both have the same content."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from datetime import datetime, timezone

from headrace.logs.fields import Field, fields_of
from headrace.printable import one_line, printable

Hide = Callable[[str], str]
"""Removes secrets from a text."""


class TextFormat(logging.Formatter):
    """`2026-11-19T05:12:03.123456Z INFO headrace.build.build: built table pipeline=payments build=7`, then the traceback."""

    def __init__(self, hide: Hide) -> None:
        super().__init__()
        self._hide = hide

    def format(self, record: logging.LogRecord) -> str:
        fields = "".join(f" {name}={_quote(value)}" for name, value in fields_of(record).items())
        trace = _trace_of(self, record)
        line = f"{_time_of(record)} {record.levelname} {record.name}: {one_line(record.getMessage())}{fields}"
        return self._hide(f"{line}\n{printable(trace)}" if trace else line)


class JsonFormat(logging.Formatter):
    """One JSON object on one line: time, level, logger and message, the fields, and the traceback where there is one."""

    def __init__(self, hide: Hide) -> None:
        super().__init__()
        self._hide = hide

    def format(self, record: logging.LogRecord) -> str:
        trace = _trace_of(self, record)
        values: dict[str, Field] = {
            "time": _time_of(record),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **fields_of(record),
            **({"traceback": trace} if trace else {}),
        }
        # Secrets are hidden in each value: an escape of JSON in the middle of one would keep it from being found.
        hidden = {name: self._hide(value) if isinstance(value, str) else value for name, value in values.items()}
        return json.dumps(hidden)


def _time_of(record: logging.LogRecord) -> str:
    """Return when a record was made, in UTC with microseconds."""
    moment = datetime.fromtimestamp(record.created, tz=timezone.utc)
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")


def _trace_of(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    if record.exc_text:
        return record.exc_text
    return formatter.formatException(record.exc_info) if record.exc_info and record.exc_info[0] else ""


def _quote(value: Field) -> str:
    """Return a field's value so that it ends where the next field begins."""
    text = str(value)
    return text if text and text.isprintable() and not set(text) & set(' "=') else json.dumps(text)
