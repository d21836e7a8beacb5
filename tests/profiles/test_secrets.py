"""A pipeline on a secured Kafka and a catalog in Postgres: it lands and builds, and nothing shows a secret anywhere."""

from __future__ import annotations

import json
import shutil
import signal
import urllib.request
from collections.abc import Mapping
from pathlib import Path

import psutil
import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from headrace.services import ports
from headrace.spec.folders import BUILT_IN
from tests.application import start_headrace
from tests.profiles.secured_broker import KEY_PASSWORD, PASSWORD, SecuredBroker

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
LATEST = """/*
keys: [uuid]
sequence_by: kafka_timestamp
*/
SELECT uuid, event_time, kafka_timestamp FROM secured.events
"""
EVENTS = 500
UNUSED = {"AWS_SECRET_ACCESS_KEY": "s3-secret-key", "HEADRACE_CATALOG_TOKEN": "c4talog-token"}


def make_pipeline(folder: Path) -> None:
    shutil.copytree(BUILT_IN / "lineage", folder)
    text = (folder / "pipeline.yml").read_text(encoding="utf-8")
    (folder / "pipeline.yml").write_text(
        text.replace("name: lineage", "name: secured").replace("lineage.events", "secured.events"), encoding="utf-8"
    )
    shutil.rmtree(folder / "sample")
    shutil.rmtree(folder / "expected")
    (folder / "staging").mkdir()
    (folder / "staging" / "latest_events.sql").write_text(LATEST, encoding="utf-8")


def pages_of(port: int) -> dict[str, str]:
    """Gives back what Spark's own pages and its API say."""
    root = f"http://127.0.0.1:{port}"

    def read(path: str) -> str:
        with urllib.request.urlopen(f"{root}{path}", timeout=30) as answer:
            return str(answer.read().decode("utf-8"))

    (application,) = json.loads(read("/api/v1/applications"))
    api = f"/api/v1/applications/{application['id']}"
    paths = ("/environment/", "/jobs/", "/SQL/", f"{api}/environment", f"{api}/sql?details=true&length=1000", f"{api}/jobs")
    return {path: read(path) for path in paths}


def found_in(texts: Mapping[str, str], secrets: list[str]) -> list[str]:
    """Gives back where a secret is, with what stands around it."""
    return [
        f"{name}: …{text[max(0, text.index(secret) - 300) : text.index(secret)]}"
        for name, text in texts.items()
        for secret in secrets
        if secret in text
    ]


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
        processes = {f"process {one.pid}": " ".join(one.info["cmdline"] or ()) for one in psutil.process_iter(["cmdline"])}
        shown = pages_of(ui)
        running.signal(signal.SIGINT)
        assert running.wait(seconds=60) == 0, running.said()
    finally:
        running.end()
    assert any("org.apache.spark" in line for line in processes.values())

    run("build", "secured")
    run("verify", "secured")
    told = run("query", "SELECT count(*) AS many FROM staging.latest_events", "--json")
    assert json.loads(told) == [{"many": EVENTS}]
    assert "secured-input" in run("topics")
    assert "HEADRACE_KAFKA_PASSWORD" in run("doctor")
    run("status", "secured")
    run("commits", "secured")
    with psycopg.connect(database) as connection:
        (tables,) = connection.execute("SELECT count(*) FROM iceberg_tables").fetchone() or (0,)
    assert tables >= 2

    written = {
        str(path): path.read_bytes().decode("utf-8", "replace")
        for top in (folder, tmp_path / "events")
        for path in top.rglob("*")
        if path.is_file()
    }
    logged = "".join(text for name, text in written.items() if name.startswith(str(tmp_path / "events")))
    assert "spark.sql.catalog.headrace.jdbc.password" in logged  # it was told, and hidden
    assert found_in({**processes, **shown, **written}, secrets) == []
