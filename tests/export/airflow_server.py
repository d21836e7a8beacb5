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
from urllib.request import Request, urlopen

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
    """`token` opens its API at `address`; what its parts and tasks said is in `home`."""

    address: str
    token: str
    home: Path

    def ask(self, path: str, *, method: str = "GET", body: object = None) -> dict[str, Any]:
        """Gives back what the API answers; a refusal is an error."""
        return _ask(f"{self.address}/api/v2{path}", method=method, body=body, token=self.token)

    def wait_to_parse(self, *dag_ids: str) -> list[str]:
        """Gives back why files could not be parsed; nothing, once all of these DAGs are there."""

        def parsed() -> tuple[list[str]] | None:
            errors = [f"{each['filename']}: {each['stack_trace']}" for each in self.ask("/importErrors")["import_errors"]]
            known = {each["dag_id"] for each in self.ask("/dags")["dags"]}
            return (errors,) if errors or known >= {*dag_ids} else None

        found = wait_until(parsed, what=f"Airflow to parse {', '.join(dag_ids)}; see {self.home}", seconds=180, pause=1.0)
        return found[0] if found else []

    def trigger(self, dag_id: str, run_id: str) -> None:
        self.ask(f"/dags/{dag_id}", method="PATCH", body={"is_paused": False})
        self.ask(f"/dags/{dag_id}/dagRuns", method="POST", body={"dag_run_id": run_id, "logical_date": None})

    def wait_for(self, dag_id: str, run_id: str, *, seconds: float) -> str:
        """Gives back the state in which a run ended."""

        def ended() -> str | None:
            state = str(self.ask(f"/dags/{dag_id}/dagRuns/{run_id}")["state"])
            return state if state in _ENDED else None

        found = wait_until(ended, what=f"{dag_id} to end; logs are in {self.home}", seconds=seconds, pause=2.0)
        assert found is not None
        return found

    def tasks(self, dag_id: str, run_id: str) -> dict[str, TaskRun]:
        """Gives back what became of each task of a run."""
        rows = self.ask(f"/dags/{dag_id}/dagRuns/{run_id}/taskInstances?limit=100")["task_instances"]
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
    program, everything = install_airflow() / "bin/airflow", {**plain, **settings, **environ}
    with (home / "migrate.txt").open("wb") as output:
        subprocess.run([program, "db", "migrate"], env=everything, cwd=home, stdout=output, stderr=output, check=True)
    parts: list[subprocess.Popen[bytes]] = []
    try:
        for part in _PARTS:
            with (home / f"{part}.txt").open("wb") as output:
                started = subprocess.Popen(
                    [program, part], env=everything, cwd=home, stdout=output, stderr=output, start_new_session=True
                )
            parts.append(started)
        address = f"http://127.0.0.1:{port}"
        wait_until(lambda: _answers(address), what=f"Airflow's API server; see {home}", seconds=180, pause=0.5)
        yield Airflow(address, _log_in(address, home), home)
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


def _answers(address: str) -> bool:
    try:
        return bool(_ask(f"{address}/api/v2/version"))
    except OSError:
        return False


def _log_in(address: str, home: Path) -> str:
    """Gives back a token of the user that Airflow made with a password of its own."""
    passwords = json.loads((home / "simple_auth_manager_passwords.json.generated").read_text(encoding="utf-8"))
    body = {"username": "admin", "password": passwords["admin"]}
    return str(_ask(f"{address}/auth/token", method="POST", body=body)["access_token"])


def _ask(url: str, *, method: str = "GET", body: object = None, token: str = "") -> dict[str, Any]:
    headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {token}"} if token else {})}
    data = None if body is None else json.dumps(body).encode()
    with urlopen(Request(url, data=data, headers=headers, method=method), timeout=30) as answer:
        found: dict[str, Any] = json.load(answer)
        return found


def _moment(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None
