"""Files that several commands write to at once."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from headrace.logs import files
from headrace.logs.files import LogFile


def write(handler: LogFile, text: str) -> None:
    handler.handle(logging.LogRecord("headrace", logging.INFO, "", 0, text, (), None))


def test_log_file_is_made_with_its_first_line(tmp_path: Path) -> None:
    path = tmp_path / "logs" / "build.log"
    handler = LogFile(path)
    assert not path.parent.exists()
    write(handler, "one")
    assert path.read_text(encoding="utf-8") == "one\n"
    handler.close()


def test_log_file_that_another_process_rotated_is_opened_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_LOG_BYTES", 40)
    path = tmp_path / "build.log"
    mine, other = LogFile(path), LogFile(path)
    for number in range(2):
        write(mine, f"a line of mine, {number}")
    write(other, "a line that rotates the file")
    write(mine, "the next")
    assert path.read_text(encoding="utf-8").splitlines() == ["a line that rotates the file", "the next"]
    assert len((tmp_path / "build.log.1").read_text(encoding="utf-8").splitlines()) == 1 + 1
    mine.close()
    other.close()


def test_log_file_that_was_removed_is_made_again(tmp_path: Path) -> None:
    path = tmp_path / "build.log"
    handler = LogFile(path)
    write(handler, "one")
    path.unlink()
    write(handler, "two")
    assert path.read_text(encoding="utf-8") == "two\n"
    handler.close()
