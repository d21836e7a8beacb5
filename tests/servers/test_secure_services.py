"""`services.secure`: Kafka and the registry require a password, its clients use it, and `headrace env` names its file."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import psutil
import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from headrace.app.client_settings import ClientVariable, list_client_variables
from headrace.errors import ServiceError
from headrace.http.client import ask, split_login
from headrace.kafka.topics import admin_client, ensure_topics
from headrace.landing.batch import Range
from headrace.landing.read import RangeReader
from headrace.servers import process
from headrace.servers.connect import find_connect, start_connect, stop_connect
from headrace.servers.connect_worker import APICURIO_CONVERTER
from headrace.servers.kafka import find_servers, kafka, start_kafka, stop_kafka
from headrace.servers.kafka_server import last_port
from headrace.servers.registry import find_registry, start_registry, stop_registry
from headrace.settings import Settings, load_settings
from headrace.sources.connector_templates import converters
from tests.support.ports import with_own_ports
from tests.support.topics import produce, producer_of

pytestmark = pytest.mark.services


def quiet(line: str) -> None:
    pass


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    """The settings of a home with a running secure broker."""
    folder = tmp_path_factory.mktemp("secure")
    settings = with_own_ports(load_settings(flags={"services.secure": "true"}, environ={}, folder=folder))
    start_kafka(settings, detached=True, report=quiet)
    yield settings
    stop_connect(settings)
    stop_registry(settings)
    stop_kafka(settings)


def is_refused(address: str, login: Mapping[str, str], *, seconds: float = 3.0) -> bool:
    """Return whether a client gets no answer in time, because librdkafka retries a refused login."""
    try:
        AdminClient({"bootstrap.servers": address, "log_level": 0, **login}).list_topics(timeout=seconds)
    except KafkaException:
        return True
    return False


def test_kafka_asks_for_the_password_on_every_port(secure: Settings) -> None:
    servers = find_servers(secure)
    assert servers is not None
    login = dict(servers.security)
    assert not is_refused(servers.bootstrap, login, seconds=60.0)
    assert is_refused(servers.bootstrap, {})
    assert is_refused(servers.bootstrap, {**login, "sasl.password": "wrong"})
    text = (secure.home / "kafka" / "server.properties").read_text(encoding="ascii")
    assert "CONTROLLER:SASL_PLAINTEXT" in text
    for name in ("server.properties", "password"):
        assert (secure.home / "kafka" / name).stat().st_mode & 0o077 == 0
    assert last_port(secure.home / "kafka") == int(servers.bootstrap.rpartition(":")[2])


def test_headrace_s_own_clients_log_in(secure: Settings) -> None:
    with kafka(secure, report=quiet) as servers:
        ensure_topics(admin_client(servers), {"own": 1})
        produce(servers.bootstrap, "own", [b"1", b"2"], producer=producer_of(servers.bootstrap, **servers.client()))
        read = list(RangeReader(tuple(sorted(servers.task_config().items()))).read([Range("own", 0, 0, 2)]))
        assert read
        assert dict(servers.security)["sasl.password"] not in repr(servers)


def test_connect_and_the_registry_of_a_secure_home(secure: Settings) -> None:
    start_registry(secure, detached=True, report=quiet)
    start_connect(secure, detached=True, report=quiet)
    registry, connect = str(find_registry(secure)), str(find_connect(secure))
    assert ask(f"{registry}/subjects").is_fine
    assert ask(f"{connect}/connectors").is_fine, "it came into Kafka"
    address, user, password = split_login(registry)
    assert ask(f"{address}/subjects").status == 401
    settings = converters("avro", registry_url=registry, registry_password="${file:secrets:registry}")
    assert settings["value.converter"] == APICURIO_CONVERTER
    assert settings["value.converter.apicurio.auth.username"] == user
    assert password not in str(settings)
    variables = {variable.name: variable for variable in list_client_variables(secure)}
    assert variables["SCHEMA_REGISTRY_URL"].value == address
    assert variables["KAFKA_SASL_PASSWORD"].read() == dict(find_servers(secure).security)["sasl.password"]  # type: ignore[union-attr]
    assert variables["CONNECT_PASSWORD"].read() == split_login(connect)[2]


def test_running_broker_without_a_password_is_not_taken_for_secure(secure: Settings, tmp_path: Path) -> None:
    wanted = load_settings(flags={"services.secure": "true"}, environ={}, folder=tmp_path)
    started = psutil.Process().create_time()
    open_one = process.ServiceState("kafka", os.getpid(), started, 1, "kafka.log", "", None, ready=True)
    process.write_state(wanted.home, open_one)
    with pytest.raises(ServiceError, match="runs without a password") as raised:
        start_kafka(wanted, detached=True, report=quiet)
    assert "headrace down" in raised.value.next_step
    relaxed = load_settings(flags={}, environ={"HEADRACE_HOME": str(secure.home)}, folder=tmp_path)
    servers = find_servers(relaxed)
    assert servers is not None
    assert not is_refused(servers.bootstrap, dict(servers.security), seconds=60.0), "a secure one is used with its password"


def test_env_prints_no_password_unless_asked(secure: Settings) -> None:
    def run(*arguments: str) -> str:
        command = [sys.executable, "-m", "headrace.cli", "env", *arguments]
        environ = {"HEADRACE_HOME": str(secure.home), "PATH": "/usr/bin:/bin"}
        return subprocess.run(command, env=environ, cwd=secure.home, capture_output=True, text=True, check=True).stdout

    password = (secure.home / "kafka" / "password").read_text(encoding="ascii").strip()
    printed = run()
    assert "export KAFKA_SECURITY_PROTOCOL=SASL_PLAINTEXT" in printed
    assert password not in printed
    script = f'{printed}\nprintf %s "$KAFKA_SASL_PASSWORD"'
    assert subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True).stdout == password
    assert f"export KAFKA_SASL_PASSWORD={password}" in run("--show-secrets")


def test_path_with_a_quote_can_be_read_by_a_shell(tmp_path: Path) -> None:
    path = tmp_path / "it's $HOME"
    path.write_text("s3cret\n", encoding="utf-8")
    line = ClientVariable("X", secret=path).as_export(show_secret=False)
    done = subprocess.run(["sh", "-c", f'{line}; printf %s "$X"'], capture_output=True, text=True, check=True)
    assert done.stdout == "s3cret"


def test_stack_is_always_secure(tmp_path: Path) -> None:
    flags = {"profile": "stack", "services.secure": "false"}
    assert load_settings(flags=flags, environ={}, folder=tmp_path).services_secure
