"""`--log-level` and `--log-format`: log lines on stderr, beside what people read; without them nothing changes."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from pathlib import Path

import pytest

from headrace.cli.commands import servers
from headrace.cli.shared import settings_here
from headrace.servers import stack
from tests.cli.conftest import Here

NO_LOG = 'log not found: "hbase"\n'


@pytest.mark.parametrize("arguments", [["--log-format", "json", "logs", "hbase"], ["logs", "hbase", "--log-format=json"]])
def test_log_options_stand_before_a_command_or_after_it(here: Here, arguments: list[str]) -> None:
    code, said = here("--log-level", "debug", *arguments)
    line, message = said.split("\n", 1)
    assert code == 2
    assert message.startswith(NO_LOG)
    assert json.loads(line)["message"] == "the command failed"
    assert json.loads(line)["error"] == "SettingsError"


def test_log_options_can_be_settings(here: Here, tmp_path: Path) -> None:
    (tmp_path / "headrace.toml").write_text('[local]\nlog.level = "debug"\n', encoding="utf-8")
    said = here("logs", "hbase")[1]
    assert " DEBUG headrace.cli.app: the command failed error=SettingsError\n" in said
    assert "hbase" not in said.split(NO_LOG)[0]


def test_without_log_options_a_command_says_what_it_said(here: Here) -> None:
    assert here("logs", "hbase")[1].startswith(NO_LOG)


@pytest.mark.parametrize("option", ["--log-level", "--log-format"])
def test_log_option_that_can_not_be_is_refused(here: Here, option: str) -> None:
    code, said = here(option, "loud", "check", "lineage")
    assert code == 2
    assert option in said
    assert "loud" in said


def test_log_setting_that_can_not_be_is_refused(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_LOG_LEVEL", "loud")
    code, said = here("doctor")
    assert (code, said.splitlines()[1]) == (2, "Set it to one of: debug, info, warning, error.")


def test_unexpected_error_is_logged_and_raised(here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object) -> None:
        raise TypeError("a bug")

    (tmp_path / ".headrace").mkdir()
    monkeypatch.setattr("headrace.servers.status.list_services", fail)
    with pytest.raises(TypeError, match="a bug"):
        here("status")
    said = (tmp_path / ".headrace" / "logs" / "headrace.log").read_text(encoding="utf-8")
    assert " ERROR headrace.cli.app: the command failed error=TypeError\nTraceback (most recent call last):\n" in said
    assert f'"{servers.__file__}"' in said


@pytest.mark.parametrize("name", ["landing", "build", "publishing", "maintenance"])
def test_failure_logs_are_shown_and_say_when_nothing_has_failed(here: Here, tmp_path: Path, name: str) -> None:
    code, said = here("logs", name)
    assert code == 1
    assert "has failed yet\nThe log is written at the first failure.\n" in said
    logs = tmp_path / ".headrace" / "logs"
    logs.mkdir(parents=True)
    (logs / f"{name}.log").write_text("Traceback\n", encoding="utf-8")
    assert here("logs", name) == (0, "Traceback\n")


def test_secrets_of_the_stack_are_in_no_line(
    here: Here, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HEADRACE_PROFILE", "stack")
    monkeypatch.setenv("HEADRACE_LOG_LEVEL", "info")
    monkeypatch.setattr(stack, "stack_settings", lambda settings: replace(settings, s3_secret_access_key="hush-hush"))
    settings_here()
    logging.getLogger("headrace.tests").info("S3 answered: no access with hush-hush")
    assert capsys.readouterr().err.endswith(" headrace.tests: S3 answered: no access with ***\n")
