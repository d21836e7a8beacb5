"""A real Airflow in an environment beside ours: a scheduler, a DAG processor and an API server, and what they say of a run."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import venv
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

import psutil

from headrace.services.ports import find_free_port
from tests.waiting import wait_until

LOCK = Path(__file__).with_name("airflow.lock")
CACHE = Path(__file__).resolve().parents[2] / ".cache"
_PARTS = ("dag-processor", "scheduler", "api-server")
_ENDED = ("success", "failed")


@dataclass(frozen=True)
class TaskRun:
    """What became of a task in a run: `None` for a moment that never came."""

    task_id: str
    state: str
    start: datetime | None
    end: datetime | None


@dataclass(frozen=True)
class Airflow:
    """`program` is its command line, `environ` what all of its processes see."""

    program: Path
    home: Path
    environ: Mapping[str, str]

    def ask(self, *arguments: str) -> str:
        """Gives back what a command of Airflow said; one that fails is an error with all it said."""
        done = subprocess.run(
            [self.program, *arguments], env=dict(self.environ), cwd=self.home, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"airflow {' '.join(arguments)}:\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def ask_json(self, *arguments: str) -> list[dict[str, Any]]:
        """Gives back the rows of a command; warnings may stand before them, and words in the place of no rows."""
        said = self.ask(*arguments, "--output", "json")
        line = next((each for each in said.splitlines() if each.startswith("[")), "[]")
        found: list[dict[str, Any]] = json.loads(line)
        return found

    def trigger(self, dag_id: str, run_id: str) -> None:
        self.ask("dags", "unpause", "--yes", dag_id)
        self.ask("dags", "trigger", dag_id, "--run-id", run_id)

    def wait_for(self, dag_id: str, run_id: str, *, seconds: float) -> str:
        """Gives back the state in which a run ended."""

        def ended() -> str | None:
            runs = {each["run_id"]: each["state"] for each in self.ask_json("dags", "list-runs", dag_id)}
            return runs.get(run_id) if runs.get(run_id) in _ENDED else None

        found = wait_until(ended, what=f"{dag_id} to end; logs are in {self.home}", seconds=seconds)
        assert found is not None
        return found

    def tasks(self, dag_id: str, run_id: str) -> dict[str, TaskRun]:
        """Gives back what became of each task of a run."""
        rows = self.ask_json("tasks", "states-for-dag-run", dag_id, run_id)
        return {
            row["task_id"]: TaskRun(row["task_id"], row["state"], _moment(row["start_date"]), _moment(row["end_date"]))
            for row in rows
        }

    def logs(self, dag_id: str, run_id: str, task_id: str) -> list[str]:
        """Gives back the log of each try of a task, first to last."""
        folder = self.home / "logs" / f"dag_id={dag_id}" / f"run_id={run_id}" / f"task_id={task_id}"
        files = sorted(folder.glob("attempt=*.log"), key=lambda path: int(path.stem.split("=")[1]))
        return ["\n".join(str(json.loads(line)["event"]) for line in path.read_text().splitlines()) for path in files]


def install_airflow() -> Path:
    """Gives back the folder of Airflow's environment, which is made once from the lock beside this file."""
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    folder = CACHE / f"airflow-{version}-{hashlib.sha256(LOCK.read_bytes()).hexdigest()[:12]}"
    if not (folder / "installed").exists():
        print("Setting up an environment for Airflow (once, 2 minutes, 300 MB)", flush=True)
        shutil.rmtree(folder, ignore_errors=True)
        venv.create(folder, with_pip=True)
        install = ["install", "--quiet", "--disable-pip-version-check", "--no-deps", "--only-binary=:all:", "--require-hashes"]
        subprocess.run([folder / "bin/python", "-m", "pip", *install, "-r", LOCK], check=True)
        (folder / "installed").touch()
    return folder


@contextmanager
def running_airflow(home: Path, *, dags: Path, environ: Mapping[str, str]) -> Iterator[Airflow]:
    """Gives a running Airflow that looks for DAGs in a folder; its processes end with the block."""
    home.mkdir(parents=True)
    port = find_free_port()
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW", "HEADRACE_", "PYTHON"))}
    settings = {
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__DAGS_FOLDER": str(dags),
        "AIRFLOW__CORE__EXECUTOR": "LocalExecutor",
        "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"http://127.0.0.1:{port}/execution/",
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__API__HOST": "127.0.0.1",
        "AIRFLOW__API__PORT": str(port),
        "AIRFLOW__API__WORKERS": "1",
        "AIRFLOW__API__SECRET_KEY": secrets.token_urlsafe(32),
        "AIRFLOW__API_AUTH__JWT_SECRET": secrets.token_urlsafe(32),
        "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED": "False",
    }
    airflow = Airflow(install_airflow() / "bin/airflow", home, {**plain, **settings, **environ})
    airflow.ask("db", "migrate")
    parts: list[subprocess.Popen[bytes]] = []
    try:
        for part in _PARTS:
            with (home / f"{part}.txt").open("wb") as output:
                parts.append(
                    subprocess.Popen(
                        [airflow.program, part],
                        env=dict(airflow.environ),
                        cwd=home,
                        stdout=output,
                        stderr=subprocess.STDOUT,
                        start_new_session=True,
                    )
                )
        wait_until(lambda: _answers(port), what=f"Airflow's API server; see {home}/api-server.txt", seconds=180)
        yield airflow
    finally:
        _end(parts)


def _end(parts: list[subprocess.Popen[bytes]]) -> None:
    """Ends the parts, first as they like it; what they leave behind is killed."""
    children = [child for part in parts if part.poll() is None for child in psutil.Process(part.pid).children(recursive=True)]
    for part in parts:
        part.send_signal(signal.SIGTERM)
    psutil.wait_procs([psutil.Process(part.pid) for part in parts if part.poll() is None], timeout=20)
    for part in parts:
        part.kill()
        part.wait()
    _, alive = psutil.wait_procs(children, timeout=5)
    for child in alive:
        child.kill()


def _answers(port: int) -> bool:
    try:
        with urlopen(f"http://127.0.0.1:{port}/api/v2/version", timeout=5) as answer:
            return bool(answer.status == 200)
    except (URLError, OSError):
        return False


def _moment(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None
