"""Capture of a pipeline: start its servers, prepare its database, register its connectors, and keep all of them running."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from threading import Event

from headrace.background import in_background
from headrace.errors import HeadraceError, RetryableError, ServiceError, SpecError, UnavailableError
from headrace.http.client import split_login
from headrace.kafka.client import KafkaServers
from headrace.secret_files import write_privately
from headrace.servers.connect import connect, find_connect, knows_kafka, secret_path, start_connect, stop_connect
from headrace.servers.embedded import Report
from headrace.servers.kafka import find_servers, kafka, start_kafka
from headrace.servers.postgres import find_postgres, postgres, start_postgres
from headrace.servers.registry import find_registry, registry, start_registry
from headrace.servers.source_database import (
    Slot,
    SourceDatabase,
    drop_publication,
    drop_slot,
    find_database,
    publish_tables,
    read_slot,
    ready_database,
)
from headrace.sessions.own_topics import make_topics
from headrace.settings import Settings
from headrace.sources import connectors
from headrace.sources.connector_templates import Connector, Surroundings, fill_templates
from headrace.sources.connectors import ConnectorStatus
from headrace.spec.model.pipeline import Capture, Pipeline

_CHECK_SECONDS = 2.0
_FIRST_WAIT_SECONDS = 2.0
_LONGEST_WAIT_SECONDS = 60.0


@dataclass(frozen=True)
class Captured:
    """A connector's status and its replication slot; None if the database is unavailable."""

    pipeline: str
    status: ConnectorStatus
    slot: Slot | None


@dataclass
class Capturing:
    """The capture of one pipeline, whose servers are running."""

    settings: Settings
    pipeline: Pipeline
    capture: Capture
    report: Report
    _waits: dict[str, float] = field(default_factory=dict)
    _again_at: dict[str, float] = field(default_factory=dict)
    _missing: set[str] = field(default_factory=set)

    def register(self) -> tuple[Connector, ...]:
        """Register the connectors and return them. Creates their topics and publications first."""
        database, filled = self._fill()
        make_topics(self.settings, self._servers(), self.pipeline.streams)
        for connector in filled:
            if connector.publication is not None:
                tables = (connector.included, connector.other_tables)
                publish_tables(database, connector.publication, patterns=tables[0], tables=tables[1])
            if connectors.register(self._connect(), connector):
                self.report(f"Registered connector {connector.name}")
        return filled

    def delete(self) -> None:
        """Delete the connectors, their offsets in Connect, their slots, and the publications that Headrace created."""
        database, filled = self._fill()
        for connector in filled:
            existed = connectors.delete(self._connect(), connector.name)
            slot = drop_slot(database, connector.slot)
            if connector.publication is not None:
                drop_publication(database, connector.publication)
            self.report(
                f"Connector {connector.name}: {'deleted' if existed else 'was not registered'};"
                f" slot {connector.slot}: {'dropped' if slot else 'did not exist'}"
            )

    def restart(self) -> None:
        """Restart the connectors and their tasks."""
        for connector in self._fill()[1]:
            connectors.restart(self._connect(), connector.name, only_failed=False)
            self.report(f"Restarted connector {connector.name}")

    def wait_until_running(self) -> None:
        """Wait until every connector runs. Raise a ServiceError with the reason if one fails."""
        for connector in self._fill()[1]:
            status = connectors.wait_until_running(self._connect(), connector.name)
            if status.problems:
                raise ServiceError(
                    f"connector {connector.name} failed: {status.problems[0]}",
                    where=self.pipeline.name,
                    next_step="Read its log: headrace logs connect   then run: headrace connectors restart"
                    f" {self.pipeline.name}",
                )
            self.report(f"Connector {connector.name} is running")

    def check(self) -> None:
        """Start stopped servers, update the servers' addresses in the connectors, and restart failed connectors.

        A connector that was deleted meanwhile stays deleted: registering it again would take an unwanted snapshot.
        """
        revive(self.settings, self.capture, report=self.report)
        for connector in self._fill()[1]:
            status = connectors.read_status(self._connect(), connector.name)
            if status.state == "MISSING":
                if connector.name not in self._missing:
                    step = f"headrace connectors register {self.pipeline.name}"
                    self.report(
                        f"Connector {connector.name} was deleted, and nothing is captured. To register it again, run: {step}"
                    )
                self._missing.add(connector.name)
                continue
            self._missing.discard(connector.name)
            if connectors.register(self._connect(), connector):
                self.report(f"Updated the servers' addresses in connector {connector.name}")
            self._restart_failed(connector.name, status.problems)

    def _restart_failed(self, name: str, problems: Sequence[str]) -> None:
        if not problems:
            if time.monotonic() > self._again_at.get(name, 0.0) + _LONGEST_WAIT_SECONDS:
                self._waits.pop(name, None)
            return
        if time.monotonic() < self._again_at.get(name, 0.0):
            return
        wait = min(_LONGEST_WAIT_SECONDS, self._waits.get(name, _FIRST_WAIT_SECONDS / 2) * 2)
        self._waits[name], self._again_at[name] = wait, time.monotonic() + wait
        self.report(f"Connector {name} failed: {problems[0]}; restarting it, next retry in {wait:.0f} s")
        connectors.restart(self._connect(), name, only_failed=True)

    def _fill(self) -> tuple[SourceDatabase, tuple[Connector, ...]]:
        database = find_database(self.settings, self.capture)
        if database is None:
            raise UnavailableError("Postgres is not running", where=self.pipeline.name, next_step="Run: headrace up postgres")
        url = find_registry(self.settings) if self.capture.format == "avro" else None
        if url is None and self.capture.format == "avro":  # without a registry, messages would become JSON
            raise UnavailableError(
                "the registry is not running", where=self.pipeline.name, next_step="Run: headrace up registry"
            )
        login = {"password": database.password, "registry": split_login(url or "")[2]}
        references = self._refer_to_secrets({name: secret for name, secret in login.items() if secret})
        around = Surroundings(database, references.get("password", ""), url, os.environ, references.get("registry", ""))
        return database, fill_templates(self.pipeline, self.capture, around)

    def _refer_to_secrets(self, secrets: Mapping[str, str]) -> dict[str, str]:
        """Return each secret's value in a connector's config: for Headrace's own Connect, a reference to a private file."""
        if self.settings.connect_url is not None:
            return dict(secrets)
        path = secret_path(self.settings, self.pipeline.name)
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_privately(path, "".join(f"{name}={_as_property(secret)}\n" for name, secret in secrets.items()))
        return {name: f"${{file:{path}:{name}}}" for name in secrets}

    def _connect(self) -> str:
        url = find_connect(self.settings)
        if url is None:
            raise UnavailableError("Connect is not running", where=self.pipeline.name, next_step="Run: headrace up connect")
        return url

    def _servers(self) -> KafkaServers:
        servers = find_servers(self.settings)
        if servers is None:
            raise UnavailableError("Kafka is not running", where=self.pipeline.name, next_step="Run: headrace up kafka")
        return servers


def _as_property(text: str) -> str:
    """Return a text as a value of a Java properties file, with each UTF-16 unit escaped."""
    units = text.encode("utf-16-be").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


def revive(settings: Settings, capture: Capture, *, report: Report) -> None:
    """Start Headrace's own servers that a capture needs and that are not running, on their existing data. Restart Connect if
    Kafka moved to another port."""
    if find_servers(settings) is None:
        start_kafka(settings, detached=False, report=report)
    if capture.url is None and find_postgres(settings) is None:
        start_postgres(settings, detached=False, report=report)
    if capture.format == "avro" and find_registry(settings) is None:
        start_registry(settings, detached=False, report=report)
    if settings.connect_url is None and find_connect(settings) is not None and not knows_kafka(settings):
        stop_connect(settings, report=report)
    if find_connect(settings) is None:
        start_connect(settings, detached=False, report=report)


def keep_services(session: Capturing) -> None:
    """Keep Headrace's own servers of a capture running until `headrace down`."""
    settings, capture = session.settings, session.capture
    own_servers: list[tuple[bool, Callable[..., object]]] = [
        (settings.connect_url is None, start_connect),
        (settings.kafka_bootstrap_servers is None, start_kafka),
        (settings.postgres_url is None and capture.url is None, start_postgres),
        (settings.registry_url is None and capture.format == "avro", start_registry),
    ]
    for is_ours, start in own_servers:
        if is_ours:
            start(settings, detached=True, report=lambda line: None)


@contextmanager
def capture_session(settings: Settings, pipeline: Pipeline, *, report: Report) -> Iterator[Capturing]:
    """Yield the capture of a pipeline with all servers running and the database prepared. At the end, stop the servers that it
    started and that nothing else uses."""
    capture = capture_of(pipeline)
    with ExitStack() as stack:
        if settings.connect_url is not None:  # Headrace's own Connect starts Kafka itself
            stack.enter_context(kafka(settings, report=report))
        if capture.url is None:
            stack.enter_context(postgres(settings, report=report))
        if capture.format == "avro":
            stack.enter_context(registry(settings, report=report))
        stack.enter_context(connect(settings, report=report))
        ready_database(settings, capture, report=report)
        yield Capturing(settings, pipeline, capture, report)


@contextmanager
def capturing(settings: Settings, pipeline: Pipeline, *, report: Report) -> Iterator[Capturing | None]:
    """Keep a pipeline's connectors running during the block. Yield None for a pipeline without a capture."""
    if pipeline.capture is None:
        yield None
        return
    with capture_session(settings, pipeline, report=report) as session:
        session.register()
        stop = Event()
        with in_background(partial(_check_repeatedly, session, stop), name="capture", end=stop.set):
            yield session


def capture_of(pipeline: Pipeline) -> Capture:
    """Return the capture of a pipeline. Raise a SpecError if it has none."""
    if pipeline.capture is None:
        raise SpecError(
            f"{pipeline.name} does not capture a Postgres database",
            where="sources.postgres",
            next_step="Add sources: {postgres: …} to its pipeline.yml, or choose another pipeline.",
        )
    return pipeline.capture


def read_captured(settings: Settings, pipeline: Pipeline) -> tuple[Captured, ...]:
    """Return the status of a pipeline's connectors, without starting servers."""
    if pipeline.capture is None:
        return ()
    database = find_database(settings, pipeline.capture)
    url = find_connect(settings)
    captured: list[Captured] = []
    for connector in _name_connectors(pipeline, pipeline.capture, database):
        slot = None
        try:
            slot = read_slot(database, connector.slot) if database else None
        except RetryableError:
            pass
        try:
            status = (
                connectors.read_status(url, connector.name)
                if url
                else ConnectorStatus(connector.name, "Connect is not running")
            )
        except RetryableError:
            status = ConnectorStatus(connector.name, "Connect does not answer")
        captured.append(Captured(pipeline.name, status, slot))
    return tuple(captured)


def _name_connectors(pipeline: Pipeline, capture: Capture, database: SourceDatabase | None) -> tuple[Connector, ...]:
    known = database or SourceDatabase("", "", "", is_ours=False)
    return fill_templates(pipeline, capture, Surroundings(known, "", None, os.environ))


def _check_repeatedly(session: Capturing, stop: Event) -> None:
    wait = _CHECK_SECONDS
    reported = ""
    while not stop.wait(wait):
        try:
            session.check()
            wait, reported = _CHECK_SECONDS, ""
        except (HeadraceError, OSError) as error:
            wait = min(_LONGEST_WAIT_SECONDS, wait * 2)
            reason = error.what if isinstance(error, RetryableError) else str(error)
            if reason != reported:
                session.report(f"{reason}; retrying")
            reported = reason
