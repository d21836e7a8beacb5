"""The stack's Spark cluster: a master and two workers of one core each, from pip's pyspark (lifecycle: see embedded.py).

All listen on 127.0.0.1 only. Every local user could run programs on an open master, so master, workers, drivers and executors
authenticate with a secret, `<home>/spark-master/secret`, readable only by its owner. `<home>/spark-worker-1/` holds the working
files and logs of executors; Spark removes an application's files a day after it ended.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from headrace.errors import ServiceError, UnavailableError
from headrace.http.client import ask
from headrace.secret_files import keep_secret, write_privately
from headrace.servers import embedded, ports, process
from headrace.servers.embedded import Embedded, Report, RunningService
from headrace.servers.failed_start import signs_in_stack
from headrace.servers.java import clear_temporary, find_java_home
from headrace.servers.launcher import Launcher
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


def _prepare_master(settings: Settings, report: Report) -> Callable[[int], process.Launch]:
    folder = settings.home / MASTER
    clear_temporary(folder)
    environ = _environ(settings, MASTER)

    def launch(port: int) -> process.Launch:
        ui_port = ports.find_free_port()
        (folder / _UI_PORT).write_text(f"{ui_port}\n", encoding="ascii")
        arguments = ("--host", ports.HOST, "--port", str(port), "--webui-port", str(ui_port))
        command = (_spark_class(), "org.apache.spark.deploy.master.Master", *arguments)
        return process.Launch(name=MASTER, command=command, folder=folder, environ=environ, port=port)

    return launch


def _prepare_worker(name: str, settings: Settings, report: Report) -> Callable[[int], process.Launch]:
    master = running_master(settings)
    if master is None:
        raise ServiceError(
            "a Spark worker requires a master, and none is running",
            where=name,
            next_step="Run: headrace up --profile stack",
        )
    folder = settings.home / name
    clear_temporary(folder)
    (folder / "work").mkdir(exist_ok=True)
    environ = _environ(settings, name)

    def launch(port: int) -> process.Launch:
        listening = ("--host", ports.HOST, "--port", "0", "--webui-port", str(port))
        size = ("--cores", str(WORKER_CORES), "--memory", WORKER_MEMORY, "--work-dir", str(folder / "work"))
        command = (_spark_class(), "org.apache.spark.deploy.worker.Worker", *listening, *size, master.url)
        return process.Launch(name=name, command=command, folder=folder, environ=environ, port=port)

    return launch


def _environ(settings: Settings, name: str) -> dict[str, str]:
    """Return the environment of a master or worker, with the secret; executors inherit it from their worker."""
    conf = settings.home / name / "conf"
    conf.mkdir(parents=True, exist_ok=True)
    (conf / "spark-defaults.conf").write_text(_DEFAULTS, encoding="utf-8")
    return {
        **os.environ,
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


def _master_answers(settings: Settings, state: process.ServiceState) -> bool:
    try:
        ui_port = int((settings.home / MASTER / _UI_PORT).read_text(encoding="ascii"))
    except (OSError, ValueError):
        return False
    return _read_status(ui_port).get("status") == "ALIVE"


def _worker_answers(settings: Settings, state: process.ServiceState) -> bool:
    """Return whether a worker is registered: without a master its `masterurl` is missing or empty."""
    return bool(_read_status(state.port).get("masterurl"))


def _master() -> Embedded:
    signs = signs_in_stack(MASTER, memory_mb=400)
    launcher = Launcher(
        MASTER,
        "Spark's master",
        port=lambda settings: 7077,
        prepare=_prepare_master,
        is_ready=_master_answers,
        signs=lambda home: signs,
    )
    return Embedded(MASTER, launcher.title, launch=launcher, answers=_master_answers)


def _worker(number: int) -> Embedded:
    name = f"spark-worker-{number}"
    signs = signs_in_stack(name, memory_mb=400)
    launcher = Launcher(
        name,
        f"Spark's worker {number}",
        port=lambda settings: 7077 + number,
        prepare=partial(_prepare_worker, name),
        is_ready=_worker_answers,
        signs=lambda home: signs,
    )
    return Embedded(name, launcher.title, launch=launcher, answers=_worker_answers)


SERVER = _master()
WORKERS = tuple(_worker(number) for number in (1, 2))
