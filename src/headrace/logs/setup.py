"""Where log lines of a command go: to stderr where `log.level` or `log.format` is set, else to `logs/headrace.log`."""

from __future__ import annotations

import logging
import sys
from typing import TextIO

from headrace.logs.fields import is_told
from headrace.logs.files import LogFile
from headrace.logs.formats import JsonFormat, TextFormat
from headrace.settings import Settings

HEADRACE = "headrace"
"""What the log of all lines is called, without its suffix; and the root of Headrace's loggers."""


def set_up_logging(settings: Settings) -> None:
    """Send the lines of Headrace's loggers where these settings say. Idempotent: the last call holds.

    Other packages' loggers stay as they are: they may log addresses and rows.
    """
    logger = logging.getLogger(HEADRACE)
    for handler in [*logger.handlers]:
        if isinstance(handler, (_StderrHandler, LogFile)):
            logger.removeHandler(handler)
            handler.close()
    if settings.log_level or settings.log_format:
        asked = _StderrHandler()
        is_json = settings.log_format == "json"
        asked.setFormatter((JsonFormat if is_json else TextFormat)(settings.without_secrets))
        logger.addHandler(asked)
        logger.setLevel((settings.log_level or "info").upper())
        return
    file = LogFile(settings.logs / f"{HEADRACE}.log")
    file.setFormatter(TextFormat(settings.without_secrets))
    file.addFilter(lambda record: settings.home.is_dir())  # a command that only reads creates no state
    logger.addHandler(file)
    # A handler of its own keeps Python from printing warnings as it does where there is none: they are printed as before.
    warnings = _StderrHandler()
    warnings.setLevel(logging.WARNING)
    warnings.addFilter(lambda record: not is_told(record))
    logger.addHandler(warnings)
    logger.setLevel(logging.INFO)


def is_logging() -> bool:
    """Return whether `set_up_logging` was called: before it was, Python prints what is logged."""
    return any(isinstance(handler, (_StderrHandler, LogFile)) for handler in logging.getLogger(HEADRACE).handlers)


class _StderrHandler(logging.Handler):
    """Writes to what stderr is now: a live board replaces it, so that lines scroll by above it."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            stream = _stderr()
            stream.write(f"{self.format(record)}\n")
            stream.flush()
        except Exception:
            self.handleError(record)


def _stderr() -> TextIO:
    """Return stderr, or what it was before a live board replaced it, where that is a file or a pipe: the board is on stdout."""
    before: TextIO | None = getattr(sys.stderr, "rich_proxied_file", None)
    return sys.stderr if before is None or before.isatty() else before
