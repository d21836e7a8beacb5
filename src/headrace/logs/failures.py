"""Errors with their tracebacks, each in the file of its activity: `headrace logs build` prints the end of `logs/build.log`.

The message of an exception may quote a row. These files have it, and only their owner may read them. Lines that leave this
machine (stderr, and what collects it) have the traceback without messages.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from threading import Lock

from headrace.logs.fields import Field, told_fields
from headrace.logs.files import LogFile
from headrace.logs.traces import without_messages
from headrace.settings import Settings

LANDING = "landing"
BUILD = "build"
PUBLISHING = "publishing"
MAINTENANCE = "maintenance"
FAILURE_LOGS = (LANDING, BUILD, PUBLISHING, MAINTENANCE)
"""What the logs are called, without their suffix."""

_OPENING = Lock()


def log_failure(
    logger: logging.Logger,
    settings: Settings,
    log: str,
    message: str,
    error: BaseException | str,
    *,
    level: int = logging.ERROR,
    **fields: Field,
) -> None:
    """Log an error with its traceback, which may be a text, to `logs/<log>.log` and to wherever `logger` writes.

    The file gets all of it, whatever the level of the logs is: messages for people point there.
    """
    whole = _record(logger, level, settings.without_secrets(message), settings.without_secrets(_format(error)), {})
    _handler_of(settings.logs / f"{log}.log").handle(whole)
    log_trace(logger, message, error, level=level, **fields, log=log)


def log_trace(
    logger: logging.Logger, message: str, error: BaseException | str, *, level: int = logging.ERROR, **fields: Field
) -> None:
    """Log an error that people see elsewhere, with its traceback, but without the messages of exceptions."""
    if logger.isEnabledFor(level):
        named: dict[str, Field] = {} if isinstance(error, str) else {"error": type(error).__name__}
        logger.handle(_record(logger, level, message, without_messages(_format(error)), {**fields, **named}))


def _format(error: BaseException | str) -> str:
    return (error if isinstance(error, str) else "".join(traceback.format_exception(error))).rstrip("\n")


def _record(logger: logging.Logger, level: int, message: str, trace: str, fields: Mapping[str, Field]) -> logging.LogRecord:
    record = logger.makeRecord(logger.name, level, "", 0, message, (), None, extra=told_fields(**fields))
    record.exc_text = trace
    return record


def _handler_of(path: Path) -> logging.Handler:
    with _OPENING:
        return _open(path)


@lru_cache(maxsize=8)
def _open(path: Path) -> logging.Handler:
    handler = LogFile(path)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    return handler
