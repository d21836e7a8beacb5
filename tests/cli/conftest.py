"""Fixtures for tests of commands that run in this process."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headrace.cli import main
from headrace.logs import HEADRACE
from tests.support.application import OURS

Here = Callable[..., tuple[int, str]]
_CHOSEN = ("HEADRACE_PROFILE", "HEADRACE_LOG_LEVEL", "HEADRACE_LOG_FORMAT")
"""What a command sets for the processes that it starts."""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Here]:
    """Yield a function that runs a command in this test's folder and returns its exit code and output."""
    monkeypatch.chdir(tmp_path)
    for name in _CHOSEN:
        monkeypatch.setenv(name, "")  # so that the end of the test takes it away
    for name in [*os.environ]:
        if OURS.match(name):
            monkeypatch.delenv(name)

    def run(*arguments: str) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["headrace", *arguments])
        capsys.readouterr()
        try:
            main()
        except SystemExit as end:
            captured = capsys.readouterr()
            return int(end.code or 0), captured.out + captured.err
        raise AssertionError("a command ends with an exit code")

    yield run
    logger = logging.getLogger(HEADRACE)
    for handler in [*logger.handlers]:
        logger.removeHandler(handler)
        handler.close()
