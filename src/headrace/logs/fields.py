"""The fields of a log line: names and numbers beside its message, so that a program can read them."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Union

Field = Union[str, int, float]
_FIELDS = "headrace_fields"
_TOLD = "headrace_told"


def log_fields(**fields: Field) -> dict[str, object]:
    """Return what to pass to a logger as `extra`: `logger.info("built table", extra=log_fields(build=7))`."""
    return {_FIELDS: fields}


def told_fields(**fields: Field) -> dict[str, object]:
    """Return the same for a line about what the terminal shows in its own words: it is printed only if logs are asked for."""
    return {**log_fields(**fields), _TOLD: True}


def is_told(record: logging.LogRecord) -> bool:
    """Return whether the terminal tells what a record says in its own words."""
    return hasattr(record, _TOLD)


def fields_of(record: logging.LogRecord) -> Mapping[str, Field]:
    """Return the fields of a record; none where it was logged without."""
    fields: Mapping[str, Field] = getattr(record, _FIELDS, {})
    return fields
