"""Background generators: one process each, found by their state files and stopped by their pids."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from headrace.app.background import flags_of, start_background, stop_background
from headrace.app.generating import SENDING
from headrace.errors import ServiceError
from headrace.servers.process import ServiceState, write_state
from headrace.servers.status import list_services, read_log
from headrace.settings import Settings, load_settings
from headrace.sources.generators import Rate
from headrace.spec import Pipeline, load_pipeline
from tests.support.processes import is_gone
from tests.support.waiting import wait_until

PIPELINE = """\
name: mine
about: a test
streams:
  fast: {topic: fast, format: json, schema: id.sql, table: raw.fast, generator: {file: wait.py, every: 500ms}}
  slow: {topic: slow, format: json, schema: id.sql, table: raw.slow, generator: {file: wait.py, every: 2s}}
"""
WAIT = """\
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_DFL)
print("waiting", flush=True)
time.sleep(600)
def events(random, now): ...
"""
UNTIL_DONE = f"""\
import os, time
print({SENDING!r}, flush=True)
while not os.path.exists("done"):
    time.sleep(0.05)
os._exit(0)
def events(random, now): ...
"""


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Settings]:
    """A working folder with a pipeline whose generators block after they were loaded."""
    folder = tmp_path / "pipelines" / "mine"
    folder.mkdir(parents=True)
    for name, text in {"pipeline.yml": PIPELINE, "id.sql": "id STRING", "wait.py": WAIT}.items():
        (folder / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2] / "src"))
    settings = load_settings(flags={}, environ={}, folder=tmp_path)
    yield settings
    stop_background(settings, target="", report=lambda line: None)


@pytest.fixture
def pipeline(settings: Settings) -> Pipeline:
    return load_pipeline("mine", environ={}, folder=Path.cwd())


def start(settings: Settings, pipeline: Pipeline, *, stream: str = "", rate: Rate | None = None) -> list[str]:
    messages: list[str] = []
    start_background(settings, pipeline, stream=stream, rate=rate or Rate(), report=messages.append, wait_seconds=0)
    return messages


def running(settings: Settings) -> dict[str, int]:
    return {
        service.name: service.pid
        for service in list_services(settings)
        if service.state in ("starting", "running") and service.pid
    }


def test_start_background_starts_a_process_per_stream_with_its_share_of_the_rate(
    settings: Settings, pipeline: Pipeline
) -> None:
    start(settings, pipeline, rate=Rate(8.0, count=100, seed=7))
    pids = running(settings)
    assert set(pids) == {"generate-mine.fast", "generate-mine.slow"}
    # A process that was just started has no arguments for a moment.
    arguments = {
        name: wait_until(psutil.Process(pid).cmdline, what=f"the arguments of {name}")[4:] for name, pid in pids.items()
    }
    assert arguments["generate-mine.fast"] == ["mine.fast", "--rate", "8.0", "--count", "100", "--seed", "7"]
    assert arguments["generate-mine.slow"] == ["mine.slow", "--rate", "2.0", "--count", "25", "--seed", "7"]
    assert [service.address for service in list_services(settings) if service.name in pids] == [None, None]


def test_start_background_passes_the_problems_of_each_generator(settings: Settings) -> None:
    payments = load_pipeline("payments", environ={}, folder=Path.cwd())
    charges, refunds = payments.streams[:2]
    asked = Rate(problems={"null_text": 0.5, "late": 0.25})
    assert flags_of(asked, charges, among=[charges, refunds]) == ["--problem", "null_text=0.5", "--problem", "late=0.25"]
    assert flags_of(asked, refunds, among=[charges, refunds]) == ["--problem", "late=0.25"]
    assert flags_of(Rate(None, count=8), refunds, among=[charges, refunds]) == ["--rate", "0", "--count", "2"]


def test_start_background_keeps_a_running_generator(settings: Settings, pipeline: Pipeline) -> None:
    start(settings, pipeline, stream="fast")
    before = running(settings)
    messages = start(settings, pipeline)
    assert messages[0] == f"mine.fast is already running (process {before['generate-mine.fast']})"
    assert running(settings)["generate-mine.fast"] == before["generate-mine.fast"]


@pytest.mark.parametrize(("target", "left"), [("mine.slow", {"generate-mine.fast"}), ("mine", set()), ("", set()), ("m", None)])
def test_stop_background_stops_only_the_target(
    settings: Settings, pipeline: Pipeline, target: str, left: set[str] | None
) -> None:
    start(settings, pipeline)
    pids = running(settings)
    messages: list[str] = []
    stopped = stop_background(settings, target=target, report=messages.append)
    remaining = set(pids) if left is None else left
    assert stopped == len(messages) == len(pids) - len(remaining)
    assert set(running(settings)) == remaining
    assert {name for name, pid in pids.items() if not is_gone(pid)} == remaining


def test_stop_background_spares_a_process_with_a_reused_pid(settings: Settings) -> None:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) as other:
        state = ServiceState("generate-mine.fast", other.pid, 1.0, 0, "fast.log", "2026-01-01", owner=None, ready=True)
        write_state(settings.home, state)
        assert stop_background(settings, target="", report=lambda line: None) == 0
        assert other.poll() is None
        other.kill()


def test_start_background_reports_a_generator_that_ends_at_once(settings: Settings, pipeline: Pipeline) -> None:
    Path("pipelines/mine/pipeline.yml").write_text("name: [\n")
    with pytest.raises(ServiceError) as caught:
        start_background(settings, pipeline, stream="fast", rate=Rate(), report=lambda line: None)
    assert caught.value.what == "mine.fast ended before it sent anything"
    assert caught.value.next_step == "Read the log: headrace logs generate-mine.fast"
    assert any("not valid YAML" in line for line in read_log(settings, "generate-mine.fast", 10))
    assert running(settings) == {}


def test_generator_is_ready_when_it_sends(settings: Settings, pipeline: Pipeline) -> None:
    Path("pipelines/mine/wait.py").write_text(WAIT.replace('"waiting"', '"Sending to topic fast"'))
    messages: list[str] = []
    start_background(settings, pipeline, stream="fast", rate=Rate(), report=messages.append)
    (status,) = [service for service in list_services(settings) if service.name == "generate-mine.fast"]
    assert (status.state, status.detached) == ("running", True)
    assert messages == [f"mine.fast is sending (process {status.pid}), log: {status.log}"]


def test_generator_that_has_finished_is_not_listed_as_died(settings: Settings, pipeline: Pipeline) -> None:
    (Path.cwd() / "pipelines/mine/wait.py").write_text(UNTIL_DONE)
    start(settings, pipeline, stream="fast")
    assert running(settings), "it goes on until it is done"
    Path("done").touch()
    wait_until(lambda: not running(settings), what="the end of the generator")
    wait_until(lambda: "ended with 0" in "\n".join(read_log(settings, "generate-mine.fast", 5)), what="the watchdog's word")
    assert wait_until(
        lambda: "generate-mine.fast" not in {service.name for service in list_services(settings)}, what="its state to go"
    )
