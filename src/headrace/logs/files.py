"""Log files in the state folder."""

from __future__ import annotations

import os
from io import TextIOWrapper
from logging import LogRecord
from logging.handlers import RotatingFileHandler
from pathlib import Path

_LOG_BYTES = 5 * 1024 * 1024


class LogFile(RotatingFileHandler):
    """A file that is made with its first line, and its folder with it. One older file is kept beside it.

    Commands that run side by side write to the same file: when another has rotated it, the new one is opened.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path, maxBytes=_LOG_BYTES, backupCount=1, encoding="utf-8", delay=True)

    def shouldRollover(self, record: LogRecord) -> int:  # noqa: N802, as logging calls it
        if self.stream is not None and _has_moved(self.stream, self.baseFilename):
            self.stream.close()
            self.stream = None
        return super().shouldRollover(record)

    def _open(self) -> TextIOWrapper:
        Path(self.baseFilename).parent.mkdir(parents=True, exist_ok=True)
        return super()._open()


def _has_moved(stream: TextIOWrapper, path: str) -> bool:
    """Return whether a path is another file now than the open one, or none."""
    try:
        return not os.path.samestat(os.stat(path), os.fstat(stream.fileno()))
    except FileNotFoundError:
        return True
