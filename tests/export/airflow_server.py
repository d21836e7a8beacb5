"""A real Airflow in a separate environment: a scheduler, a DAG processor and an API server, with access to its runs."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

from headrace.servers.ports import find_free_port
from tests.export.tools import install_tool, running_parts
from tests.support.waiting import wait_until

LOCK = Path(__file__).with_name("airflow.lock")
_PARTS = ("dag-processor", "scheduler", "api-server")
_ENDED = ("success", "failed")


@dataclass(frozen=True)
class TaskRun:
    """The state of a task in a run. A timestamp is `None` if the task did not get that far."""

    task_id: str
    state: str
    start: datetime | None
    end: datetime | None


@dataclass(frozen=True)
class Airflow:
    """A running Airflow with its API at `address` and a `token`. Logs are in `home`."""

    address: str
    token: str
    home: Path

    def ask(self, path: str, *, method: str = "GET", body: object = None) -> dict[str, Any]:
        """Return the API's response. A failed request raises an error."""
        return _ask(f"{self.address}/api/v2{path}", method=method, body=body, token=self.token)

    def wait_to_parse(self, *dag_ids: str) -> list[str]:
        """Return the import errors, or nothing once all of these DAGs are parsed."""

        def parsed() -> tuple[list[str]] | None:
            errors = [f"{error['filename']}: {error['stack_trace']}" for error in self.ask("/importErrors")["import_errors"]]
            known = {dag["dag_id"] for dag in self.ask("/dags")["dags"]}
            return (errors,) if errors or known >= {*dag_ids} else None

        parsed_dags = wait_until(parsed, what=f"Airflow to parse {', '.join(dag_ids)}; see {self.home}", seconds=180, pause=1.0)
        return parsed_dags[0] if parsed_dags else []

    def trigger(self, dag_id: str, run_id: str) -> None:
        self.ask(f"/dags/{dag_id}", method="PATCH", body={"is_paused": False})
        self.ask(f"/dags/{dag_id}/dagRuns", method="POST", body={"dag_run_id": run_id, "logical_date": None})

    def wait_for(self, dag_id: str, run_id: str, *, seconds: float) -> str:
        """Return the final state of a run."""

        def ended() -> str | None:
            state = str(self.ask(f"/dags/{dag_id}/dagRuns/{run_id}")["state"])
            return state if state in _ENDED else None

        run = wait_until(ended, what=f"{dag_id} to end; logs are in {self.home}", seconds=seconds, pause=2.0)
        assert run is not None
        return run

    def tasks(self, dag_id: str, run_id: str) -> dict[str, TaskRun]:
        """Return the state of each task of a run."""
        rows = self.ask(f"/dags/{dag_id}/dagRuns/{run_id}/taskInstances?limit=100")["task_instances"]
        return {
            row["task_id"]: TaskRun(row["task_id"], row["state"], _moment(row["start_date"]), _moment(row["end_date"]))
            for row in rows
        }

    def logs(self, dag_id: str, run_id: str, task_id: str) -> list[str]:
        """Return the logs of all tries of a task, in order."""
        folder = self.home / "logs" / f"dag_id={dag_id}" / f"run_id={run_id}" / f"task_id={task_id}"
        files = sorted(folder.glob("attempt=*.log"), key=lambda path: int(path.stem.split("=")[1]))
        return ["\n".join(str(json.loads(line)["event"]) for line in path.read_text().splitlines()) for path in files]


def install_airflow() -> Path:
    """Return the folder of Airflow's environment."""
    return install_tool("Airflow", lock=LOCK, cost="2 minutes, 300 MB")


@contextmanager
def running_airflow(home: Path, *, dags: Path, environ: Mapping[str, str]) -> Iterator[Airflow]:
    """Yield a running Airflow that reads DAGs from a folder. Its processes end with the block."""
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
    with running_parts({part: (program, part) for part in _PARTS}, home=home, environ=everything):
        address = f"http://127.0.0.1:{port}"
        wait_until(lambda: _answers(address), what=f"Airflow's API server; see {home}", seconds=180, pause=0.5)
        yield Airflow(address, _log_in(address, home), home)


def _answers(address: str) -> bool:
    try:
        return bool(_ask(f"{address}/api/v2/version"))
    except OSError:
        return False


def _log_in(address: str, home: Path) -> str:
    """Return a token of the user that Airflow created with a generated password."""
    passwords = json.loads((home / "simple_auth_manager_passwords.json.generated").read_text(encoding="utf-8"))
    body = {"username": "admin", "password": passwords["admin"]}
    return str(_ask(f"{address}/auth/token", method="POST", body=body)["access_token"])


def _ask(url: str, *, method: str = "GET", body: object = None, token: str = "") -> dict[str, Any]:
    headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {token}"} if token else {})}
    data = None if body is None else json.dumps(body).encode()
    with urlopen(Request(url, data=data, headers=headers, method=method), timeout=30) as answer:
        answer_json: dict[str, Any] = json.load(answer)
        return answer_json


def _moment(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None
