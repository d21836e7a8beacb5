"""An error's whole traceback is in the file that messages point to; elsewhere it is without messages."""

from __future__ import annotations

import logging
import stat
from pathlib import Path

import pytest

from headrace.logs import BUILD, LANDING, log_failure
from headrace.settings import Settings, load_settings

LOG = logging.getLogger("headrace.tests")


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return load_settings(flags={}, environ={"HEADRACE_KAFKA_PASSWORD": "hush-hush"}, folder=tmp_path)


def fail() -> BaseException:
    try:
        raise ValueError("no number: 'alice', hush-hush")
    except ValueError as error:
        return error


def test_log_failure_writes_the_whole_traceback_to_its_file(settings: Settings) -> None:
    log_failure(LOG, settings, BUILD, "pond.a: try 1 failed", fail(), build=7)
    said = (settings.logs / "build.log").read_text(encoding="utf-8")
    assert "ERROR pond.a: try 1 failed\nTraceback (most recent call last):\n" in said
    assert said.endswith("ValueError: no number: 'alice', ***\n")
    assert "in fail" in said
    assert [path.name for path in settings.logs.iterdir()] == ["build.log"]


def test_log_failure_takes_the_traceback_of_another_process(settings: Settings) -> None:
    log_failure(LOG, settings, LANDING, "a.b: try 1 failed", "Traceback (most recent call last):\n  there\nOSError: full\n")
    said = (settings.logs / "landing.log").read_text(encoding="utf-8")
    assert said.endswith("ERROR a.b: try 1 failed\nTraceback (most recent call last):\n  there\nOSError: full\n")


def test_log_failure_gives_the_logger_fields_and_no_messages_of_exceptions(
    settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    log_failure(LOG, settings, BUILD, "pond.a: try 1 failed", fail(), build=7)
    (record,) = caplog.records
    assert record.exc_text is not None
    assert record.exc_text.splitlines()[-1] == "ValueError"
    assert "alice" not in record.exc_text.replace("raise ValueError(\"no number: 'alice'", "")
    assert record.__dict__["headrace_fields"] == {"build": 7, "log": "build", "error": "ValueError"}


def test_log_failure_writes_its_file_whatever_the_level(settings: Settings, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, LOG.name)
    log_failure(LOG, settings, BUILD, "a", fail(), level=logging.WARNING)
    assert "Traceback" in (settings.logs / "build.log").read_text(encoding="utf-8")
    assert caplog.records == []


def test_log_failure_survives_the_loss_of_its_folder(settings: Settings, capsys: pytest.CaptureFixture[str]) -> None:
    settings.home.mkdir(mode=0o700)
    settings.logs.write_text("in the way", encoding="utf-8")
    log_failure(LOG, settings, BUILD, "a", fail())
    assert stat.S_ISREG(settings.logs.stat().st_mode)
    assert "--- Logging error ---" in capsys.readouterr().err
