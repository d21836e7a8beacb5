"""Where lines go: to stderr where that is asked for, else to a file, and the terminal stays as it was."""

from __future__ import annotations

import io
import json
import logging
from pathlib import Path

import pytest
from rich.console import Console
from rich.live import Live

from headrace.logs import BUILD, is_logging, log_failure, log_fields, set_up_logging
from headrace.settings import Settings, load_settings

LOG = logging.getLogger("headrace.tests")


def settings_of(folder: Path, **environ: str) -> Settings:
    settings = load_settings(
        flags={}, environ={f"HEADRACE_LOG_{name}": value for name, value in environ.items()}, folder=folder
    )
    settings.home.mkdir(exist_ok=True)
    return settings


def test_lines_go_to_a_file_where_nothing_is_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = settings_of(tmp_path)
    set_up_logging(settings)
    LOG.info("built a table", extra=log_fields(build=7))
    LOG.debug("a detail")
    assert (settings.logs / "headrace.log").read_text(encoding="utf-8").endswith(" headrace.tests: built a table build=7\n")
    assert capsys.readouterr() == ("", "")


def test_lines_create_no_state(tmp_path: Path) -> None:
    settings = load_settings(flags={}, environ={}, folder=tmp_path)
    set_up_logging(settings)
    LOG.warning("one")
    assert [*tmp_path.iterdir()] == []


def test_warnings_are_printed_as_python_prints_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    set_up_logging(settings_of(tmp_path))
    LOG.warning("an entity of %d records", 7)
    assert capsys.readouterr() == ("", "an entity of 7 records\n")


def test_failures_that_the_terminal_tells_are_not_printed_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = settings_of(tmp_path)
    set_up_logging(settings)
    log_failure(LOG, settings, BUILD, "pond.a: try 1 failed", ValueError("x"))
    assert capsys.readouterr() == ("", "")
    assert "pond.a: try 1 failed log=build error=ValueError" in (settings.logs / "headrace.log").read_text(encoding="utf-8")


def test_level_asks_for_lines_on_stderr(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = settings_of(tmp_path, LEVEL="warning")
    set_up_logging(settings)
    LOG.info("one")
    LOG.warning("two")
    log_failure(LOG, settings, BUILD, "three", ValueError("x"))
    said = capsys.readouterr()
    assert said.out == ""
    assert [line.split(" ", 1)[1] for line in said.err.splitlines()] == [
        "WARNING headrace.tests: two",
        "ERROR headrace.tests: three log=build error=ValueError",
    ]
    assert [path.name for path in settings.logs.iterdir()] == ["build.log"]


def test_format_asks_for_lines_on_stderr(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    set_up_logging(settings_of(tmp_path, FORMAT="json"))
    LOG.info("one", extra=log_fields(build=7))
    LOG.debug("two")
    (line,) = capsys.readouterr().err.splitlines()
    assert {name: value for name, value in json.loads(line).items() if name != "time"} == {
        "level": "INFO",
        "logger": "headrace.tests",
        "message": "one",
        "build": 7,
    }


def test_last_settings_hold(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert not is_logging()
    for _ in range(2):
        set_up_logging(settings_of(tmp_path, LEVEL="info"))
    assert is_logging()
    LOG.info("one")
    assert capsys.readouterr().err.count("one") == 1


def test_other_packages_are_not_logged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    set_up_logging(settings_of(tmp_path, LEVEL="debug"))
    logging.getLogger("pyiceberg.io").debug("s3://key:secret@store")
    assert capsys.readouterr().err == ""


def test_lines_go_to_a_redirected_stderr_beside_a_live_board(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stderr, terminal = io.StringIO(), io.StringIO()
    monkeypatch.setattr("sys.stderr", stderr)
    set_up_logging(settings_of(tmp_path, FORMAT="json"))
    with Live("the board", console=Console(file=terminal, force_terminal=True, width=20)):
        LOG.info("a line that is longer than the terminal is wide")
    assert json.loads(stderr.getvalue())["message"] == "a line that is longer than the terminal is wide"
    assert "a line" not in terminal.getvalue()
