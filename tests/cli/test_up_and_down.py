"""Services that `headrace up` starts and other commands use until `headrace down`."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.application import start_headrace
from tests.support.command import run_command

pytestmark = pytest.mark.services
OPEN_UMASK = 0o022
"""Of a shell that lets everybody read new files."""


@pytest.fixture
def open_umask() -> Iterator[None]:
    before = os.umask(OPEN_UMASK)
    yield
    os.umask(before)


@pytest.mark.usefixtures("open_umask")
def test_up_runs_servers_until_down(tmp_path: Path) -> None:
    environ = {"HEADRACE_HOME": str(tmp_path / ".headrace")}

    def run(*arguments: str) -> str:
        application = start_headrace(*arguments, environ=environ, folder=tmp_path)
        assert application.wait() == 0, application.said()
        return application.said()

    def run_here(*arguments: str) -> str:
        """Run a command in this process, which saves the start of another."""
        os.umask(OPEN_UMASK)  # the last command has made it private
        code, output = run_command(*arguments, environ=environ, folder=tmp_path)
        assert code == 0, output
        return output

    run_here("new", "mine")
    os.umask(OPEN_UMASK)
    assert "Kafka is ready on 127.0.0.1:" in run("up")
    try:
        (topic,) = json.loads(run_here("topics", "--json"))
        assert (topic["readers"][0]["label"].split(".")[0], topic["messages"]) == ("mine", 0), (
            "the topic of a pipeline is there"
        )
        output = run_here("generate", "lineage", "--rate", "0", "--count", "300")
        assert "300 events are acknowledged by Kafka" in output
        assert "Kafka is starting" not in output
        status = json.loads(run_here("status", "lineage", "--json"))
        assert (status["services"][0]["state"], status["streams"][0]["lag"]) == ("running", 300)
        assert "Kafka" in run_here("logs", "kafka", "--lines", "500")
        home = tmp_path / ".headrace"
        state = [home, home / "logs", *(home / "kafka").rglob("*"), *(home / "logs").iterdir()]
        assert len(state) > 20, "topics have files"
        assert [path for path in state if path.exists() and path.stat().st_mode & 0o077] == []
    finally:
        assert run("down") == "Postgres is stopped\nKafka is stopped\n"
    assert run_here("down") == "nothing was running\n"
