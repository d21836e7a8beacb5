"""Log files in the state folder."""

from __future__ import annotations

from io import TextIOWrapper
from logging.handlers import RotatingFileHandler
from pathlib import Path

_LOG_BYTES = 5 * 1024 * 1024


class LogFile(RotatingFileHandler):
    """A file that is made with its first line, and its folder with it. One older file is kept beside it."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, maxBytes=_LOG_BYTES, backupCount=1, encoding="utf-8", delay=True)

    def _open(self) -> TextIOWrapper:
        Path(self.baseFilename).parent.mkdir(parents=True, exist_ok=True)
        return super()._open()
