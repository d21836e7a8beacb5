"""A pipeline on a secured Kafka and a catalog in Postgres: it lands and builds, and nothing shows a secret anywhere."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from headrace.servers import ports
from tests.profiles.secret_search import command_lines, files_in, found_in, make_pipeline, pages_of
from tests.profiles.secured_broker import KEY_PASSWORD, PASSWORD, SecuredBroker
from tests.support.application import start_headrace

pytestmark = [pytest.mark.long, pytest.mark.services, pytest.mark.spark]

PROFILE = """
[secured]
catalog.uri = "postgresql://{host}:{port}/{dbname}"
[secured.spark]
master = "local[2]"
conf."spark.ui.enabled" = true
conf."spark.ui.port" = {ui}
conf."spark.eventLog.enabled" = true
conf."spark.eventLog.compress" = false
conf."spark.eventLog.dir" = "file://{events}"
"""
EVENTS = 500
UNUSED = {"AWS_SECRET_ACCESS_KEY": "s3-secret-key", "HEADRACE_CATALOG_TOKEN": "c4talog-token"}


def test_it_lands_and_builds_and_shows_no_secret(secured: SecuredBroker, database: str, tmp_path: Path) -> None:
    folder, ui, parts = tmp_path / "work", ports.find_free_port(), conninfo_to_dict(database)
    make_pipeline(folder / "pipelines" / "secured")
    (tmp_path / "events").mkdir()
    profile = PROFILE.format(**{"port": 5432, **parts}, ui=ui, events=tmp_path / "events")
    (folder / "headrace.toml").write_text(profile, encoding="utf-8")
    environ = {
        **secured.environ,
        **UNUSED,
        "HEADRACE_PROFILE": "secured",
        "HEADRACE_HOME": str(folder / ".headrace"),
        "HEADRACE_CATALOG_CREDENTIAL": f"{parts['user']}:{parts['password']}",
        "KAFKA_TOPIC": "secured-input",
    }
    secrets = [PASSWORD, PASSWORD.partition('"')[0], KEY_PASSWORD, str(parts["password"]), *UNUSED.values()]

    def run(*arguments: str) -> str:
        done = start_headrace(*arguments, environ=environ, folder=folder)
        assert done.wait(seconds=180) == 0, f"{arguments}: {done.said()}"
        return done.said()

    run("generate", "secured", "--rate", "0", "--count", str(EVENTS))
    running = start_headrace("run", "secured", environ=environ, folder=folder)
    try:
        running.wait_to_say("latest_events", seconds=180)
        processes = command_lines()
        shown = pages_of(ui)
        running.signal(signal.SIGINT)
        assert running.wait(seconds=60) == 0, running.said()
    finally:
        running.end()
    assert any("org.apache.spark" in line for line in processes.values())

    run("build", "secured")
    run("verify", "secured")
    answer = run("query", "SELECT count(*) AS many FROM staging.latest_events", "--json")
    assert json.loads(answer) == [{"many": EVENTS}]
    assert "secured-input" in run("topics")
    assert "HEADRACE_KAFKA_PASSWORD" in run("doctor")
    run("status", "secured")
    run("commits", "secured")
    with psycopg.connect(database) as connection:
        (tables,) = connection.execute("SELECT count(*) FROM iceberg_tables").fetchone() or (0,)
    assert tables >= 2

    written = dict(files_in(folder, tmp_path / "events"))
    logged = "".join(text for name, text in written.items() if name.startswith(str(tmp_path / "events")))
    assert "spark.sql.catalog.headrace.jdbc.password" in logged  # it was told, and hidden
    assert found_in({**processes, **shown, **written}, secrets) == []
