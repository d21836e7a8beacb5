"""The REST interfaces of Connect and the registry under attack: other users, other sites, references to files."""

from __future__ import annotations

import http.client
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import psutil
import pytest

from headrace.http.client import ask, split_login
from headrace.servers.connect import find_connect, running_connect, start_connect, stop_connect
from headrace.servers.registry import find_registry, running_registry, start_registry, stop_registry
from headrace.settings import Settings, load_settings
from tests.support.ports import with_own_ports

pytestmark = pytest.mark.services

PLUGIN = "io.debezium.connector.postgresql.PostgresConnector"
SECRET = "only-the-owner-reads-this"


@pytest.fixture(scope="module")
def settings(broker: str, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    environ = {"KAFKA_BOOTSTRAP_SERVERS": broker}
    return with_own_ports(load_settings(flags={}, environ=environ, folder=tmp_path_factory.mktemp("rest")))


@pytest.fixture(scope="module")
def connect(settings: Settings) -> Iterator[str]:
    """The address of a running Connect, with its login."""
    os.environ["HEADRACE_KAFKA_PASSWORD"] = SECRET
    start_connect(settings, detached=False, report=lambda line: None)
    del os.environ["HEADRACE_KAFKA_PASSWORD"]
    yield str(find_connect(settings))
    stop_connect(settings)


@pytest.fixture(scope="module")
def registry(settings: Settings) -> Iterator[str]:
    start_registry(settings, detached=False, report=lambda line: None)
    yield str(find_registry(settings))
    stop_registry(settings)


def status_of(port: int, path: str, *, method: str = "GET", headers: Mapping[str, str], body: str | None = None) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    try:
        connection.request(method, path, body=body, headers=dict(headers))
        return connection.getresponse().status
    finally:
        connection.close()


def private_ports(pid: int) -> list[int]:
    """The ports that a server's own process listens on, behind the gate."""
    return [
        connection.laddr.port
        for connection in psutil.Process(pid).net_connections("tcp")
        if connection.status == psutil.CONN_LISTEN
    ]


def validate(url: str, reference: str) -> str:
    config = {"connector.class": PLUGIN, "name": "x", "topic.prefix": reference, "database.hostname": "127.0.0.1"}
    answer = ask(f"{url}/connector-plugins/PostgresConnector/config/validate", method="PUT", body=config)
    return json.dumps(answer.body)


def test_connect_requires_the_password(connect: str, settings: Settings) -> None:
    address, user, password = split_login(connect)
    assert ask(f"{connect}/connectors").is_fine
    running = running_connect(settings)
    assert running is not None
    wrong = f"http://{user}:wrong@127.0.0.1:"
    for port in (running.port, *private_ports(running.pid)):
        for path, method in (
            ("/", "GET"),
            ("/connectors", "GET"),
            ("/connector-plugins", "GET"),
            ("/connector-plugins/PostgresConnector/config/validate", "PUT"),
            ("/connectors/x/config", "PUT"),
            ("/admin/loggers", "GET"),
            ("/health", "GET"),
        ):
            assert ask(f"http://127.0.0.1:{port}{path}", method=method, body={}).status == 401, (port, path)
            assert ask(f"{wrong}{port}{path}", method=method, body={}).status == 401
        # Workers send each other these with a signature instead of the password.
        for path, method in (("/connectors/x/tasks", "POST"), ("/connectors/x/fence", "PUT")):
            assert ask(f"http://127.0.0.1:{port}{path}", method=method, body=[]).status >= 400
    assert password not in address
    assert (settings.home / "connect" / "password").stat().st_mode & 0o077 == 0
    assert (settings.home / "connect" / "worker.properties").stat().st_mode & 0o077 == 0


def test_references_in_a_validation_read_nothing(connect: str, settings: Settings, tmp_path: Path) -> None:
    (tmp_path / "file").write_text(SECRET)
    (tmp_path / "a.properties").write_text(f"key={SECRET}\n")
    escape = settings.home / "connect" / "secrets" / ".." / "users.properties"
    for reference in (
        f"${{directory:{tmp_path}:file}}",
        f"${{file:{tmp_path / 'a.properties'}:key}}",
        f"${{file:{escape}:headrace}}",
        "${env:HEADRACE_KAFKA_PASSWORD}",
        "${env:PATH}",
    ):
        answer = validate(connect, reference)
        assert SECRET not in answer, reference
        assert split_login(connect)[2] not in answer, reference
        assert os.environ["PATH"] not in answer
    assert validate(split_login(connect)[0], f"${{directory:{tmp_path}:file}}").count(SECRET) == 0


@pytest.mark.parametrize("server", ["connect", "registry"])
def test_page_of_another_site_is_refused(server: str, request: pytest.FixtureRequest, settings: Settings) -> None:
    request.getfixturevalue(server)
    running = running_connect(settings) if server == "connect" else running_registry(settings)
    assert running is not None
    path = "/connectors" if server == "connect" else "/apis/ccompat/v7/subjects/x/versions"
    rebound = {"Host": f"evil.example:{running.port}"}
    assert status_of(running.port, path, headers=rebound) == 421
    own = {"Host": f"127.0.0.1:{running.port}"}
    foreign = {**own, "Origin": "http://evil.example", "Content-Type": "application/json"}
    assert status_of(running.port, path, method="POST", headers=foreign, body="{}") == 403
    plain = {**own, "Content-Type": "text/plain"}
    assert status_of(running.port, path, method="POST", headers=plain, body="{}") == 415


def test_registry_is_open_through_its_gate_alone(registry: str, settings: Settings) -> None:
    assert split_login(registry)[1:] == ("", "")
    schema = {"schema": '{"type": "string"}'}
    answer = ask(f"{registry}/subjects/s-value/versions", method="POST", body=schema)
    assert answer.is_fine
    assert ask(f"{registry}/subjects").body == ["s-value"]
    running = running_registry(settings)
    assert running is not None
    for port in private_ports(running.pid):
        for path in ("/apis/ccompat/v7/subjects", "/apis/registry/v2/system/info", "/apis/registry/v3/system/info", "/"):
            assert ask(f"http://127.0.0.1:{port}{path}").status in (401, 404), (port, path)
    assert (settings.home / "registry" / "credentials").stat().st_mode & 0o077 == 0
