"""What the tests of commands share: a command in this process, where nothing has to be killed."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.cli import main
from tests.support.application import OURS

Here = Callable[..., tuple[int, str]]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Here:
    """Run a command in this test's folder, and return its exit code and what it said."""
    monkeypatch.chdir(tmp_path)
    for name in [*os.environ]:
        if OURS.match(name):
            monkeypatch.delenv(name)

    def run(*arguments: str) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["headrace", *arguments])
        capsys.readouterr()
        try:
            main()
        except SystemExit as end:
            said = capsys.readouterr()
            return int(end.code or 0), said.out + said.err
        raise AssertionError("a command ends with an exit code")

    return run
