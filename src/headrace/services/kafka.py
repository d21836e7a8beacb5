"""Kafka for a command: the user's own, or a real broker that Headrace starts, shares and stops.

The broker of a home runs once. It ends with the last command that uses it, unless `headrace up` started it: then it
lives until `headrace down`. After a crash it comes back on the same data, and on the same port if that is free.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from headrace.errors import ServiceError, UnavailableError
from headrace.services import kafka_server, ports, process
from headrace.services.jars import resolve_jars
from headrace.services.java import choose_java
from headrace.services.locks import locked, unlock
from headrace.settings import Settings

NAME = "kafka"
START_TIMEOUT = 90.0
ANSWER_TIMEOUT = 15.0
_ATTEMPTS = 3

Report = Callable[[str], None]


@dataclass(frozen=True)
class KafkaService:
    """A running broker; `detached` is one that lives until `headrace down`."""

    bootstrap_servers: str
    port: int
    pid: int
    log: Path
    since: str
    detached: bool


@contextmanager
def kafka(settings: Settings, *, report: Report) -> Iterator[str]:
    """Gives the bootstrap servers of a Kafka that answers, and stops at its end what it alone started and used."""
    if settings.kafka_bootstrap_servers:
        _check_own(settings.kafka_bootstrap_servers, origin=settings.origins.get("kafka.bootstrap_servers", ""))
        yield settings.kafka_bootstrap_servers
        return
    lease = process.take_lease(settings.home, NAME)
    try:
        yield _find_or_start(settings, detached=False, report=report).bootstrap_servers
    finally:
        with _start_lock(settings, report=report):
            if process.end_lease(settings.home, NAME, lease):
                report("Kafka is stopped")


def running_kafka(settings: Settings) -> KafkaService | None:
    """Gives back this home's broker if its process lives and it has been ready, else None."""
    state = process.read_state(settings.home, NAME)
    if state is None or not state.ready or process.find_process(state) is None:
        return None
    return _as_service(state)


def find_servers(settings: Settings) -> str | None:
    """Gives back the bootstrap servers of the user's own Kafka or of this home's broker; None where that does not run."""
    service = None if settings.kafka_bootstrap_servers else running_kafka(settings)
    return service.bootstrap_servers if service else settings.kafka_bootstrap_servers


def start_kafka(settings: Settings, *, detached: bool, report: Report) -> KafkaService:
    """Gives back this home's broker, started if it does not run. Detached it lives until `stop_kafka`; otherwise it
    ends with this process, or with the last one that uses it."""
    lease = process.take_lease(settings.home, NAME)
    try:
        service = _find_or_start(settings, detached=detached, report=report)
    except BaseException:
        unlock(lease)
        raise
    if detached:
        unlock(lease)
    return service


def stop_kafka(settings: Settings, *, report: Report = lambda line: None) -> bool:
    """Gives back whether a broker was running; it is stopped, whoever uses it."""
    with _start_lock(settings, report=report):
        return process.stop(settings.home, NAME)


def _find_or_start(settings: Settings, *, detached: bool, report: Report) -> KafkaService:
    """The caller holds a lease, so a broker that is found here does not go away for lack of users."""
    with _start_lock(settings, report=report):
        state = process.read_state(settings.home, NAME)
        if state is not None and process.find_process(state) is not None:
            if not state.ready:  # its starter was killed: nobody waits for it any more
                process.stop(settings.home, NAME)
            else:
                _check_running(state)
                if detached and state.owner is not None:
                    state = process.keep(settings.home, state)
                report(f"Kafka is already running on {ports.HOST}:{state.port}")
                return _as_service(state)
        return _as_service(_start(settings, detached=detached, report=report))


def _start(settings: Settings, *, detached: bool, report: Report) -> process.ServiceState:
    folder = settings.home / "kafka"
    folder.mkdir(parents=True, exist_ok=True)
    kafka_server.check_space(settings.home)
    port = _choose_port(settings, report=report)
    java = choose_java(os.environ, cache=settings.home / "java")
    server = kafka_server.Server(folder=folder, java=java.program, jars=resolve_jars(NAME, report=report))
    report("Kafka is starting")
    began = time.monotonic()
    kafka_server.format_storage(server)
    for attempt in range(1, _ATTEMPTS + 1):
        kafka_server.write_properties(server, port=port, controller_port=ports.find_free_port())
        launch = process.Launch(
            name=NAME,
            command=server.command("kafka.Kafka", "server.properties"),
            folder=folder,
            environ=os.environ,
            port=port,
        )
        state = process.start(settings.home, launch, detached=detached)
        try:
            _wait_until_ready(state, cluster=kafka_server.read_cluster_id(folder), home=settings.home)
        except ServiceError as error:
            process.stop(settings.home, NAME, grace=2.0)
            if kafka_server.PORT_TAKEN not in error.what or attempt == _ATTEMPTS:
                raise
            port = _choose_port(settings, report=report)
        except BaseException:
            process.stop(settings.home, NAME, grace=2.0)
            raise
        else:
            break
    report(f"Kafka is ready on {ports.HOST}:{port} ({time.monotonic() - began:.1f} s)")
    return process.mark_ready(settings.home, state)


def _choose_port(settings: Settings, *, report: Report) -> int:
    """Gives back the port of the last run, else the usual one, else a free one. A port that was asked for is a must."""
    if settings.origins.get("kafka.port", "default") != "default":
        if not ports.becomes_free(settings.kafka_port):
            raise ServiceError(
                f"port {settings.kafka_port} is taken{ports.name_holder(settings.kafka_port)}",
                where=f"kafka.port, from {settings.origins['kafka.port']}",
                next_step="Stop that program, or choose another port, or leave it out: then a free one is taken.",
            )
        return settings.kafka_port
    last = kafka_server.last_port(settings.home / "kafka")
    if last is not None and ports.becomes_free(last):
        return last
    if ports.is_free(settings.kafka_port):
        return settings.kafka_port
    port = ports.find_free_port()
    report(f"Port {settings.kafka_port} is taken{ports.name_holder(settings.kafka_port)}: Kafka takes {port}")
    return port


def _wait_until_ready(state: process.ServiceState, *, cluster: str | None, home: Path) -> None:
    deadline = time.monotonic() + START_TIMEOUT
    log = Path(state.log)
    while ports.is_free(state.port):
        _check_alive(state, home=home)
        if time.monotonic() > deadline:
            break
        time.sleep(0.05)
    client = _client(f"{ports.HOST}:{state.port}")
    while time.monotonic() < deadline:
        answered = _ask(client, timeout=1.0)
        if answered is not None and answered == cluster:
            return
        _check_alive(state, home=home)
        time.sleep(0.05)
    raise ServiceError(
        f"Kafka did not answer within {START_TIMEOUT:.0f} seconds",
        where=str(log),
        next_step="If this machine is very busy, run the command again. Otherwise read the log: headrace logs kafka",
    )


def _check_alive(state: process.ServiceState, *, home: Path) -> None:
    if process.find_process(state) is None:
        text = Path(state.log).read_text(encoding="utf-8", errors="replace")
        raise kafka_server.explain_failure(text, log=Path(state.log), home=home)


def _check_running(state: process.ServiceState) -> None:
    client = _client(f"{ports.HOST}:{state.port}")
    if _ask(client, timeout=ANSWER_TIMEOUT) is None:
        raise UnavailableError(
            f"Kafka runs (pid {state.pid}) but does not answer on {ports.HOST}:{state.port}",
            where=state.log,
            next_step="Run: headrace down   then the command again.",
        )


def _check_own(servers: str, *, origin: str) -> None:
    if _ask(_client(servers), timeout=ANSWER_TIMEOUT) is None:
        raise UnavailableError(
            f"Kafka does not answer on {servers}",
            where=f"kafka.bootstrap_servers, from {origin}" if origin else "kafka.bootstrap_servers",
            next_step="Start it or fix the address. Without one (unset KAFKA_BOOTSTRAP_SERVERS), Headrace starts a"
            " Kafka of its own.",
        )


def _client(servers: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": servers, "log_level": 0, "reconnect.backoff.max.ms": 500})


def _ask(client: AdminClient, *, timeout: float) -> str | None:
    """Gives back the id of the cluster that answers, or None if none with a broker does."""
    try:
        answer = client.list_topics(timeout=timeout)
    except KafkaException:
        return None
    return str(answer.cluster_id) if answer.brokers else None


@contextmanager
def _start_lock(settings: Settings, *, report: Report) -> Iterator[None]:
    path = process.start_lock(settings.home, NAME)
    try:
        with locked(path, timeout=START_TIMEOUT * 2, waiting=lambda: report("Another command is starting Kafka")):
            yield
    except TimeoutError:
        raise ServiceError(
            "another command has been starting or stopping Kafka for too long",
            where=str(path),
            next_step="Run: headrace status   and end the command that hangs.",
        ) from None


def _as_service(state: process.ServiceState) -> KafkaService:
    return KafkaService(
        bootstrap_servers=f"{ports.HOST}:{state.port}",
        port=state.port,
        pid=state.pid,
        log=Path(state.log),
        since=state.since,
        detached=state.owner is None,
    )
