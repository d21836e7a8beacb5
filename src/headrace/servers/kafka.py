"""Kafka for a command: the user's own, or a broker that Headrace starts, shares and stops (see embedded.py)."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from headrace.errors import UnavailableError
from headrace.kafka.client import KafkaServers, own_servers, with_login
from headrace.secret_files import keep_secret
from headrace.servers import embedded, kafka_server, ports, process
from headrace.servers.embedded import Embedded, Report, RunningService
from headrace.servers.jars import resolve_jars
from headrace.servers.java import choose_java
from headrace.servers.launcher import Launcher
from headrace.settings import Settings

NAME = "kafka"
ANSWER_TIMEOUT = 15.0


@dataclass(frozen=True)
class KafkaService(RunningService):
    """A running broker."""

    @property
    def bootstrap_servers(self) -> str:
        return f"{ports.HOST}:{self.port}"


@contextmanager
def kafka(settings: Settings, *, report: Report) -> Iterator[KafkaServers]:
    """Yield the servers of a Kafka that answers; stop it at the end if nothing else uses it.

    The user's own Kafka keeps running.
    """
    own = own_servers(settings)
    if own:
        _check_own(own, origin=settings.origins.get("kafka.bootstrap_servers", ""))
        yield own
        return
    with embedded.use(BROKER, settings, report=report) as state:
        yield _servers(settings, state)


def running_kafka(settings: Settings) -> KafkaService | None:
    """Return this home's broker if it runs and has been ready, else None."""
    state = embedded.running(BROKER, settings)
    return None if state is None else KafkaService.of(state)


def find_servers(settings: Settings) -> KafkaServers | None:
    """Return the servers of the user's own Kafka, else of this home's broker; None if that does not run."""
    own = own_servers(settings)
    state = None if own else embedded.running(BROKER, settings)
    return _servers(settings, state) if state else own


def start_kafka(settings: Settings, *, detached: bool, report: Report) -> KafkaService:
    """Return this home's broker; start it if it does not run.

    Detached it runs until `stop_kafka`, otherwise until the last process that uses it ends.
    """
    return KafkaService.of(embedded.start(BROKER, settings, detached=detached, report=report))


def stop_kafka(settings: Settings, *, report: Report = lambda line: None) -> bool:
    """Stop the broker, even if other commands use it; return whether it was running."""
    return embedded.stop(BROKER, settings, report=report)


def _prepare(settings: Settings, report: Report) -> Callable[[int], process.Launch]:
    folder = settings.home / NAME
    folder.mkdir(parents=True, exist_ok=True)
    kafka_server.check_space(settings.home)
    server = kafka_server.Server(folder=folder, java=choose_java(os.environ).program, jars=resolve_jars(NAME, report=report))
    password = _password(settings) if settings.services_secure else None

    def launch(port: int) -> process.Launch:
        kafka_server.format_storage(server)
        kafka_server.write_properties(server, port=port, controller_port=ports.find_free_port(), password=password)
        command = server.command("kafka.Kafka", "server.properties")
        secure = settings.services_secure
        return process.Launch(name=NAME, command=command, folder=folder, environ=os.environ, port=port, secure=secure)

    return launch


def _is_ready(settings: Settings, state: process.ServiceState) -> bool:
    """Return whether this home's broker answers on the port, and not another one."""
    if ports.is_free(state.port):
        return False
    cluster = _ask(_client(_servers(settings, state)), timeout=1.0)
    return cluster is not None and cluster == kafka_server.read_cluster_id(settings.home / NAME)


def _answers(settings: Settings, state: process.ServiceState) -> bool:
    return _ask(_client(_servers(settings, state)), timeout=ANSWER_TIMEOUT) is not None


_LAUNCHER = Launcher(
    NAME,
    "Kafka",
    port=lambda settings: settings.kafka_port,
    prepare=_prepare,
    is_ready=_is_ready,
    signs=kafka_server.failure_signs,
    last_port=kafka_server.last_port,
    pause=0.05,
)
BROKER = Embedded(NAME, _LAUNCHER.title, launch=_LAUNCHER, answers=_answers, securable=True)


def _servers(settings: Settings, state: process.ServiceState) -> KafkaServers:
    """Return the address of this home's broker, with its login if it was started with one."""
    address = KafkaService.of(state).bootstrap_servers
    own = with_login(address, user=kafka_server.USER, password=_password(settings)) if state.secure else KafkaServers(address)
    return replace(own, reader=settings.kafka_reader)


def _password(settings: Settings) -> str:
    return keep_secret(settings.home / NAME / "password")


def _check_own(servers: KafkaServers, *, origin: str) -> None:
    refusals: list[str] = []

    def note(error: KafkaError) -> None:
        if error.code() in (KafkaError._AUTHENTICATION, KafkaError._SSL):
            refusals.append(f": authentication failed ({error.str()})")

    client = _client(servers, note)
    if _ask(client, timeout=ANSWER_TIMEOUT) is None:
        client.poll(0)  # delivers errors to `note`
        raise UnavailableError(
            f"Kafka does not answer on {servers}{refusals[0] if refusals else ''}",
            where=f"kafka.bootstrap_servers, from {origin}" if origin else "kafka.bootstrap_servers",
            next_step="Start it or fix the address. If KAFKA_BOOTSTRAP_SERVERS is unset, Headrace starts its own Kafka.",
        )


def _client(servers: KafkaServers, note: Callable[[KafkaError], None] = lambda error: None) -> AdminClient:
    config: dict[str, Any] = {**servers.client(reconnect_backoff_max_ms=500), "error_cb": note}
    return AdminClient(config)


def _ask(client: AdminClient, *, timeout: float) -> str | None:
    """Return the id of the cluster that answers, or None if no broker does."""
    try:
        answer = client.list_topics(timeout=timeout)
    except KafkaException:
        return None
    return str(answer.cluster_id) if answer.brokers else None
