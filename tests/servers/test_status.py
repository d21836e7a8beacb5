from __future__ import annotations

import os
import time
from pathlib import Path

import psutil
import pytest

from headrace.errors import ServiceError, SettingsError
from headrace.servers import process
from headrace.servers.process import ServiceState
from headrace.servers.status import ServiceStatus, list_services, read_log
from headrace.settings import Settings


def write(settings: Settings, *, started: float, ready: bool = True, pid: int | None = None) -> None:
    state = ServiceState("kafka", pid or os.getpid(), started, 9092, "/log", "2026-01-01", owner=None, ready=ready)
    process.write_state(settings.home, state)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    from headrace.settings import load_settings

    return load_settings(flags={}, environ={}, folder=tmp_path)


def test_status_is_stopped_before_the_first_start(settings: Settings) -> None:
    names = ("kafka", "postgres", "connect", "registry", "trino")
    assert list_services(settings) == tuple(ServiceStatus(name, "stopped") for name in names)


def test_status_of_a_running_server_has_its_port(settings: Settings) -> None:
    write(settings, started=psutil.Process().create_time())
    status, *_ = list_services(settings)
    assert (status.state, status.pid, status.address) == ("running", os.getpid(), "127.0.0.1:9092")
    assert status.detached
    assert status.memory_bytes is not None
    assert status.memory_bytes > 1_000_000


def test_status_is_starting_until_the_server_answers(settings: Settings) -> None:
    write(settings, started=psutil.Process().create_time(), ready=False)
    assert list_services(settings)[0].state == "starting"


def test_stale_state_is_a_server_that_died(settings: Settings) -> None:
    write(settings, started=time.time() - 9999)
    status, *_ = list_services(settings)
    assert (status.state, status.address) == ("died", None)


@pytest.mark.parametrize("lines", [0, 1, 3, 5000, 99999])
def test_end_of_a_log(settings: Settings, lines: int) -> None:
    log = process.log_path(settings.home, "kafka")
    log.parent.mkdir(parents=True)
    written = [f"line {number} {'x' * (number % 50)}" for number in range(9000)]
    log.write_text("\n".join(written) + "\n")
    assert list(read_log(settings, "kafka", lines)) == (written[-lines:] if lines else [])


def test_log_that_is_not_there(settings: Settings) -> None:
    with pytest.raises(ServiceError, match=r"never started here\nIt is written by headrace up kafka\."):
        read_log(settings, "kafka", 10)
    with pytest.raises(ServiceError, match=r"It is written by headrace up connect\."):
        read_log(settings, "connect", 10)
    with pytest.raises(ServiceError, match="It is written by a command that lands or builds, such as headrace run lineage"):
        read_log(settings, "spark", 10)
    with pytest.raises(SettingsError, match="Logs are: kafka, postgres, connect, registry, trino, spark"):
        read_log(settings, "catalog", 10)
