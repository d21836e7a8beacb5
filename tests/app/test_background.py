"""Generators in the background: one process each, found again, and stopped by their own pids."""

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
    """A working folder with a pipeline whose generators, once loaded, wait for as long as a test can take."""
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
    said: list[str] = []
    start_background(settings, pipeline, stream=stream, rate=rate or Rate(), report=said.append, wait_seconds=0)
    return said


def running(settings: Settings) -> dict[str, int]:
    return {one.name: one.pid for one in list_services(settings) if one.state in ("starting", "running") and one.pid}


def test_each_is_a_process_with_its_share_of_the_rate(settings: Settings, pipeline: Pipeline) -> None:
    start(settings, pipeline, rate=Rate(8.0, count=100, seed=7))
    pids = running(settings)
    assert set(pids) == {"generate-mine.fast", "generate-mine.slow"}
    # A process that was just started has no arguments for a moment.
    told = {name: wait_until(psutil.Process(pid).cmdline, what=f"the arguments of {name}")[4:] for name, pid in pids.items()}
    assert told["generate-mine.fast"] == ["mine.fast", "--rate", "8.0", "--count", "100", "--seed", "7"]
    assert told["generate-mine.slow"] == ["mine.slow", "--rate", "2.0", "--count", "25", "--seed", "7"]
    assert [one.address for one in list_services(settings) if one.name in pids] == [None, None]


def test_each_is_told_of_the_problems_that_it_makes(settings: Settings) -> None:
    payments = load_pipeline("payments", environ={}, folder=Path.cwd())
    charges, refunds = payments.streams[:2]
    asked = Rate(problems={"null_text": 0.5, "late": 0.25})
    assert flags_of(asked, charges, among=[charges, refunds]) == ["--problem", "null_text=0.5", "--problem", "late=0.25"]
    assert flags_of(asked, refunds, among=[charges, refunds]) == ["--problem", "late=0.25"]
    assert flags_of(Rate(None, count=8), refunds, among=[charges, refunds]) == ["--rate", "0", "--count", "2"]


def test_one_that_runs_is_left_alone(settings: Settings, pipeline: Pipeline) -> None:
    start(settings, pipeline, stream="fast")
    before = running(settings)
    said = start(settings, pipeline)
    assert said[0] == f"mine.fast is already running (process {before['generate-mine.fast']})"
    assert running(settings)["generate-mine.fast"] == before["generate-mine.fast"]


@pytest.mark.parametrize(("target", "left"), [("mine.slow", {"generate-mine.fast"}), ("mine", set()), ("", set()), ("m", None)])
def test_only_what_is_named_is_stopped(settings: Settings, pipeline: Pipeline, target: str, left: set[str] | None) -> None:
    start(settings, pipeline)
    pids = running(settings)
    said: list[str] = []
    stopped = stop_background(settings, target=target, report=said.append)
    kept = set(pids) if left is None else left
    assert stopped == len(said) == len(pids) - len(kept)
    assert set(running(settings)) == kept
    assert {name for name, pid in pids.items() if not is_gone(pid)} == kept


def test_a_process_that_was_given_the_pid_later_is_not_touched(settings: Settings) -> None:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) as other:
        state = ServiceState("generate-mine.fast", other.pid, 1.0, 0, "fast.log", "2026-01-01", owner=None, ready=True)
        write_state(settings.home, state)
        assert stop_background(settings, target="", report=lambda line: None) == 0
        assert other.poll() is None
        other.kill()


def test_one_that_can_not_begin_is_told_and_its_log_says_why(settings: Settings, pipeline: Pipeline) -> None:
    Path("pipelines/mine/pipeline.yml").write_text("name: [\n")
    with pytest.raises(ServiceError) as caught:
        start_background(settings, pipeline, stream="fast", rate=Rate(), report=lambda line: None)
    assert caught.value.what == "mine.fast ended before it sent anything"
    assert caught.value.next_step == "Read the log: headrace logs generate-mine.fast"
    assert any("not valid YAML" in line for line in read_log(settings, "generate-mine.fast", 10))
    assert running(settings) == {}


def test_one_is_ready_when_it_sends(settings: Settings, pipeline: Pipeline) -> None:
    Path("pipelines/mine/wait.py").write_text(WAIT.replace('"waiting"', '"Sending to topic fast"'))
    said: list[str] = []
    start_background(settings, pipeline, stream="fast", rate=Rate(), report=said.append)
    (status,) = [one for one in list_services(settings) if one.name == "generate-mine.fast"]
    assert (status.state, status.detached) == ("running", True)
    assert said == [f"mine.fast is sending (process {status.pid}), log: {status.log}"]


def test_one_that_has_sent_all_is_not_shown_as_dead(settings: Settings, pipeline: Pipeline) -> None:
    (Path.cwd() / "pipelines/mine/wait.py").write_text(UNTIL_DONE)
    start(settings, pipeline, stream="fast")
    assert running(settings), "it goes on until it is done"
    Path("done").touch()
    wait_until(lambda: not running(settings), what="the end of the generator")
    wait_until(lambda: "ended with 0" in "\n".join(read_log(settings, "generate-mine.fast", 5)), what="the watchdog's word")
    assert wait_until(lambda: "generate-mine.fast" not in {one.name for one in list_services(settings)}, what="its state to go")
