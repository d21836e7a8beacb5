"""A pipeline on the stack, submitted and run: the cluster lets it in, and nothing shows one of the stack's secrets anywhere."""

from __future__ import annotations

import json
import signal
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.servers import embedded, ports, spark_cluster
from headrace.settings import Settings
from tests.profiles.secret_search import command_lines, files_in, found_in, make_pipeline, pages_of, read_page
from tests.programs.stacked import StackLake, running_stack

pytestmark = [pytest.mark.long, pytest.mark.services, pytest.mark.spark]

PROFILE = """
[stack.spark.conf]
"spark.ui.enabled" = true
"spark.ui.port" = {ui}
"spark.eventLog.enabled" = true
"spark.eventLog.compress" = false
"spark.eventLog.dir" = "file://{events}"
"""
EVENTS = 500
TOKEN = "c4talog-token"
MADE_UP = ("s3/access-key", "s3/secret-key", "spark-master/secret", "postgres/password")
KEPT_IN = (*MADE_UP, "s3/server.properties", "spark-master/application/spark-defaults.conf")
"""The only files of a home that have secrets in them; their owner alone may read them."""


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[StackLake]:
    tmp_path.chmod(0o755)
    with running_stack(tmp_path / "work") as lake:
        yield lake


def test_it_is_submitted_and_run_and_shows_no_secret(lake: StackLake, tmp_path: Path) -> None:
    home, ui, events = lake.home, ports.find_free_port(), tmp_path / "events"
    events.mkdir()
    make_pipeline(lake.folder / "pipelines" / "secured")
    (lake.folder / "headrace.toml").write_text(PROFILE.format(ui=ui, events=events), encoding="utf-8")
    secrets = [*((home / path).read_text(encoding="ascii").strip() for path in MADE_UP), TOKEN]

    def run(*arguments: str) -> str:
        done = lake.start(*arguments, HEADRACE_CATALOG_TOKEN=TOKEN)
        assert done.wait(seconds=300) == 0, f"{arguments}: {done.said()}"
        return done.said()

    run("generate", "secured", "--rate", "0", "--count", str(EVENTS))
    run("submit", "secured", "--run", "land", "--profile", "stack")
    run("submit", "secured", "--run", "build", "--profile", "stack")
    run("submit", "secured", "--dry-run", "--profile", "stack")
    answer = run("query", "SELECT count(*) AS many FROM staging.latest_events", "--json")
    assert json.loads(answer) == [{"many": EVENTS}]

    run("generate", "secured", "--rate", "0", "--count", str(EVENTS))
    running = lake.start("run", "secured", HEADRACE_CATALOG_TOKEN=TOKEN)
    running.wait_to_say("latest_events", seconds=300)
    processes = command_lines()
    shown = pages_of(ui) | pages_of_cluster(lake.home_settings)
    assert "HEADRACE_CATALOG_TOKEN" in run("doctor")
    run("doctor", "--json")
    run("status", "secured")
    run("commits", "secured")
    running.signal(signal.SIGINT)
    assert running.wait(seconds=120) == 0, running.said()
    run("verify", "secured")

    assert any("CoarseGrainedExecutorBackend" in line for line in processes.values())
    for path in KEPT_IN:
        assert stat.S_IMODE((home / path).stat().st_mode) == 0o600, path
    written = dict(files_in(tmp_path, but=[home / path for path in KEPT_IN]))
    executors = [name for name in written if "work/app-" in name and name.endswith(("/stdout", "/stderr"))]
    assert any("Spark Executor Command" in written[name] for name in executors)
    logged = "".join(text for name, text in written.items() if name.startswith(str(events)))
    for name in (
        "spark.authenticate.secret",
        "spark.sql.catalog.headrace.s3.secret-access-key",
        "spark.sql.catalog.headrace.token",
    ):
        assert name in logged  # it was told, and hidden
    assert found_in({**processes, **shown, **written}, secrets) == []


def pages_of_cluster(settings: Settings) -> dict[str, str]:
    """Return what the pages of the master and of its workers say, and those of each application and executor."""
    master = int((settings.home / spark_cluster.MASTER / "ui-port").read_text(encoding="ascii"))
    pages = {f"master {path}": read_page(master, path) for path in ("/", "/json/")}
    for application in json.loads(pages["master /json/"])["activeapps"]:
        pages[f"application {application['id']}"] = read_page(master, f"/app/?appId={application['id']}")
    assert len(pages) > 2, "no application runs"
    for server in spark_cluster.WORKERS:
        state = embedded.running(server, settings)
        assert state is not None
        pages |= {f"{server.name} {path}": read_page(state.port, path) for path in ("/", "/json/")}
        for executor in json.loads(pages[f"{server.name} /json/"])["executors"]:
            for log in ("stdout", "stderr"):
                path = f"/logPage/?appId={executor['appid']}&executorId={executor['id']}&logType={log}"
                pages[f"{server.name} {path}"] = read_page(state.port, path)
    return pages
