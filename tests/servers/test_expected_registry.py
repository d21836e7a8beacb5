"""A registry outage is distinguished from having no registry, so that messages wait instead of being quarantined."""

from __future__ import annotations

import os
import time
from pathlib import Path

import psutil
import pytest

from headrace.servers import process
from headrace.servers.process import ServiceState
from headrace.servers.registry import ExpectedRegistry, find_registry
from headrace.settings import Settings, load_settings

ADDRESS = "http://127.0.0.1:8081/apis/ccompat/v7"


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return load_settings(flags={}, environ={}, folder=tmp_path)


def write(settings: Settings, *, started: float, ready: bool = True) -> None:
    state = ServiceState("registry", os.getpid(), started, 8081, "/log", "2026-01-01", owner=None, ready=ready)
    process.write_state(settings.home, state)


def test_no_registry_is_expected_where_none_was_started(settings: Settings) -> None:
    assert ExpectedRegistry(settings).find() == ""


def test_registry_that_died_is_expected(settings: Settings) -> None:
    write(settings, started=time.time() - 9999)
    assert (find_registry(settings), ExpectedRegistry(settings).find()) == (None, ADDRESS)


def test_registry_that_is_starting_is_expected(settings: Settings) -> None:
    write(settings, started=psutil.Process().create_time(), ready=False)
    assert (find_registry(settings), ExpectedRegistry(settings).find()) == (None, ADDRESS)


def test_stopped_registry_is_expected_by_its_users(settings: Settings) -> None:
    registry = ExpectedRegistry(settings)
    write(settings, started=psutil.Process().create_time())
    assert registry.find() == ADDRESS
    process.state_path(settings.home, "registry").unlink()
    assert registry.find() == ADDRESS
    assert ExpectedRegistry(settings).find() == ""


def test_own_registry_is_expected(tmp_path: Path) -> None:
    own = load_settings(flags={}, environ={"HEADRACE_REGISTRY_URL": "http://me:secret@registry:8081"}, folder=tmp_path)
    assert ExpectedRegistry(own).find() == "http://me:secret@registry:8081"
