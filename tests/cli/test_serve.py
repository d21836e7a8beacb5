"""`headrace serve`: on the loopback address, without starting servers, until it is stopped."""

from __future__ import annotations

import os
import re
import signal
import socket
from pathlib import Path

import httpx
import psutil
import pytest

from headrace.app.serving import listen
from headrace.errors import SettingsError
from tests.support.application import Application, start_headrace


def address_of(application: Application) -> str:
    application.wait_to_say("Ctrl-C to stop")
    address = re.search(r"http://127\.0\.0\.1:\d+", application.said())
    assert address
    return address[0]


@pytest.mark.services
def test_serve_runs_until_it_is_stopped(tmp_path: Path) -> None:
    (tmp_path / "pipelines" / "broken").mkdir(parents=True)
    (tmp_path / "pipelines" / "broken" / "pipeline.yml").write_text("name: broken\n")
    application = start_headrace("serve", "--port", "0", environ={}, folder=tmp_path)
    try:
        address = address_of(application)
        assert httpx.get(f"{address}/health", timeout=60).json() == {"status": "healthy"}
        names = {pipeline["name"] for pipeline in httpx.get(f"{address}/api/figures", timeout=60).json()["pipelines"]}
        assert {"lineage", "payments", "weather"} <= names
        assert [pipeline["name"] for pipeline in httpx.get(f"{address}/api/flow", timeout=60).json()["broken"]] == ["broken"]
        assert httpx.get(f"{address}/weather", timeout=60).status_code == 200
        assert httpx.get(f"{address}/api/weather", timeout=60).status_code == 503, "no Postgres runs"
        assert psutil.Process(application.pid).children() == [], "neither Spark nor a server is started"
        application.signal(signal.SIGTERM)
        application.wait()
        with pytest.raises(httpx.ConnectError):
            httpx.get(f"{address}/health")
        assert "Traceback" not in application.said()
    finally:
        application.end()


@pytest.mark.services
def test_serve_refuses_a_taken_port(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        application = start_headrace("serve", "lineage", "--port", port, environ={}, folder=tmp_path)
        assert application.wait(seconds=60) == 2
    assert re.fullmatch(
        rf"--port: port {port} of 127\.0\.0\.1 is taken( by .* \(pid {os.getpid()}\))?\n"
        r"Choose another port, or any free one: headrace serve --port 0\n",
        application.said(),
    )


@pytest.mark.parametrize("host", ["192.0.2.1", "no-such-host.invalid"])
def test_listen_refuses_a_foreign_address(host: str) -> None:
    with pytest.raises(SettingsError) as caught:
        listen(host, 0)
    assert str(caught.value) == (
        f'--host: "{host}" is not an address of this machine\nOmit --host, or pass an address of this machine.'
    )


@pytest.mark.services
def test_serve_refuses_an_unknown_pipeline(tmp_path: Path) -> None:
    application = start_headrace("serve", "linage", "--port", "0", environ={}, folder=tmp_path)
    assert application.wait(seconds=60) == 2
    assert 'not found: pipeline "linage"' in application.said()
