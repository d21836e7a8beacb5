"""The stack's Spark cluster: a master and two workers of one core each, from pip's pyspark (lifecycle: see embedded.py).

All listen on 127.0.0.1 only. Every local user could run programs on an open master, so master, workers, drivers and executors
authenticate with a secret, `<home>/spark-master/secret`, readable only by its owner. `<home>/spark-worker-1/` holds the working
files and logs of executors; Spark removes an application's files a day after it ended.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from headrace.errors import ServiceError, UnavailableError
from headrace.http.client import ask
from headrace.secret_files import keep_secret, write_privately
from headrace.servers import embedded, ports, process
from headrace.servers.embedded import Embedded, Report, RunningService
from headrace.servers.java import find_java_home
from headrace.servers.java_server import JavaServer, start_server
from headrace.settings import Settings

MASTER = "spark-master"
WORKER_CORES = 1
WORKER_MEMORY = "2g"
_UI_PORT = "ui-port"
_DEFAULTS = """\
spark.authenticate true
spark.master.rest.enabled false
spark.worker.cleanup.enabled true
spark.worker.cleanup.appDataTtl 86400
spark.deploy.maxExecutorRetries -1
"""
_JAVA_OPTIONS = "-XX:+UseSerialGC -XX:-UsePerfData -Djava.net.preferIPv4Stack=true"


@dataclass(frozen=True)
class MasterService(RunningService):
    """A running master; `url` is the value of spark.master."""

    @property
    def url(self) -> str:
        return f"spark://{ports.HOST}:{self.port}"


def running_master(settings: Settings) -> MasterService | None:
    """Return this home's master if it runs and has been ready, else None."""
    state = embedded.running(SERVER, settings)
    return None if state is None else MasterService.of(state)


def application_conf_dir(settings: Settings) -> Path:
    """Return the configuration folder for applications, with the secret; readable only by its owner."""
    folder = settings.home / MASTER / "application"
    folder.mkdir(parents=True, exist_ok=True)
    secret = keep_secret(_secret_path(settings))
    write_privately(folder / "spark-defaults.conf", f"spark.authenticate true\nspark.authenticate.secret {secret}\n")
    return folder


def _start_master(settings: Settings, detached: bool, report: Report) -> process.ServiceState:
    folder = settings.home / MASTER
    folder.mkdir(parents=True, exist_ok=True)
    environ = _environ(settings, MASTER)

    def command(port: int) -> tuple[str, ...]:
        ui_port = ports.find_free_port()
        (folder / _UI_PORT).write_text(f"{ui_port}\n", encoding="ascii")
        arguments = ("--host", ports.HOST, "--port", str(port), "--webui-port", str(ui_port))
        return (_spark_class(), "org.apache.spark.deploy.master.Master", *arguments)

    return start_server(_MASTER, settings, command=command, environ=environ, detached=detached, report=report)


def _start_worker(server: JavaServer, settings: Settings, detached: bool, report: Report) -> process.ServiceState:
    master = running_master(settings)
    if master is None:
        raise ServiceError(
            "a Spark worker requires a master, and none is running",
            where=server.name,
            next_step="Run: headrace up --profile stack",
        )
    work = settings.home / server.name / "work"
    work.mkdir(parents=True, exist_ok=True)

    def command(port: int) -> tuple[str, ...]:
        listening = ("--host", ports.HOST, "--port", "0", "--webui-port", str(port))
        size = ("--cores", str(WORKER_CORES), "--memory", WORKER_MEMORY, "--work-dir", str(work))
        return (_spark_class(), "org.apache.spark.deploy.worker.Worker", *listening, *size, master.url)

    environ = _environ(settings, server.name)
    return start_server(server, settings, command=command, environ=environ, detached=detached, report=report)


def _environ(settings: Settings, name: str) -> dict[str, str]:
    """Return the environment of a master or worker, with the secret; executors inherit it from their worker."""
    conf = settings.home / name / "conf"
    conf.mkdir(parents=True, exist_ok=True)
    (conf / "spark-defaults.conf").write_text(_DEFAULTS, encoding="utf-8")
    return {
        "JAVA_HOME": str(find_java_home(os.environ, cache=settings.home / "java")),
        "SPARK_CONF_DIR": str(conf),
        "SPARK_LOCAL_IP": ports.HOST,
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": _JAVA_OPTIONS,
        "SPARK_WORKER_OPTS": "",
        "SPARK_MASTER_OPTS": "",
        "_SPARK_AUTH_SECRET": keep_secret(_secret_path(settings)),
    }


def _secret_path(settings: Settings) -> Path:
    return settings.home / MASTER / "secret"


def _spark_class() -> str:
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise ServiceError("pyspark is missing", where="this Python", next_step="Run: pip install pyspark==4.1.*")
    return str(Path(spec.origin).parent / "bin" / "spark-class")


def _read_status(port: int) -> dict[str, object]:
    """Return the status that a master or worker serves on the port of its web UI; empty if it does not answer."""
    try:
        answer = ask(f"http://{ports.HOST}:{port}/json/", timeout=5.0)
    except UnavailableError:
        return {}
    return answer.body if answer.is_fine and isinstance(answer.body, dict) else {}


def _master_answers(settings: Settings, port: int) -> bool:
    try:
        ui_port = int((settings.home / MASTER / _UI_PORT).read_text(encoding="ascii"))
    except (OSError, ValueError):
        return False
    return _read_status(ui_port).get("status") == "ALIVE"


def _worker_answers(settings: Settings, port: int) -> bool:
    """Return whether a worker is registered: without a master its `masterurl` is missing or empty."""
    return bool(_read_status(port).get("masterurl"))


_MASTER = JavaServer(MASTER, "Spark's master", port=7077, memory_mb=400, answers=_master_answers)
SERVER = Embedded(
    MASTER, _MASTER.title, launch=_start_master, answers=lambda settings, state: _master_answers(settings, state.port)
)


def _worker(number: int) -> Embedded:
    server = JavaServer(f"spark-worker-{number}", f"Spark's worker {number}", 7077 + number, 400, _worker_answers)
    return Embedded(
        server.name,
        server.title,
        launch=lambda settings, detached, report: _start_worker(server, settings, detached, report),
        answers=lambda settings, state: _worker_answers(settings, state.port),
    )


WORKERS = tuple(_worker(number) for number in (1, 2))
