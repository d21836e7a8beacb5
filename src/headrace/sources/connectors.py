"""Register, inspect, restart and delete connectors through Kafka Connect's REST API."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from urllib.parse import quote

from headrace.backoff import CONNECT_REQUESTS
from headrace.errors import ServiceError, UnavailableError
from headrace.http.client import Answer, ask, without_secrets
from headrace.sources.connector_templates import Connector

_WAIT_SECONDS = 60.0
_PAUSE_SECONDS = 0.3
_PASSING = (409, 500, 503, 504)
"""Transient statuses of a worker that is rebalancing or starting."""


@dataclass(frozen=True)
class TaskStatus:
    """A task of a connector. `problem` is one line about its failure."""

    id: int
    state: str
    problem: str | None = None


@dataclass(frozen=True)
class ConnectorStatus:
    """A connector and its tasks in Connect. The state `MISSING` means that it is not registered."""

    name: str
    state: str
    problem: str | None = None
    tasks: tuple[TaskStatus, ...] = ()

    @property
    def problems(self) -> tuple[str, ...]:
        """One line per failure."""
        own = (self.problem or "no reason given",) if self.state == "FAILED" else ()
        return (*own, *(task.problem or "no reason given" for task in self.tasks if task.state == "FAILED"))

    @property
    def is_running(self) -> bool:
        return self.state == "RUNNING" and bool(self.tasks) and all(task.state == "RUNNING" for task in self.tasks)


def read_status(url: str, name: str) -> ConnectorStatus:
    """Return the status of a connector and its tasks."""
    answer = _ask(f"{_at(url, name)}/status", fine=(404,))
    if answer.status == 404:
        return ConnectorStatus(name, "MISSING")
    body = answer.body
    tasks = tuple(TaskStatus(task["id"], task["state"], _first_line(task.get("trace"))) for task in body["tasks"])
    return ConnectorStatus(name, body["connector"]["state"], _first_line(body["connector"].get("trace")), tasks)


def read_config(url: str, name: str) -> Mapping[str, str] | None:
    """Return a connector's config without its name, or None where there is no such connector."""
    answer = _ask(f"{_at(url, name)}/config", fine=(404,))
    return None if answer.status == 404 else {key: value for key, value in answer.body.items() if key != "name"}


def register(url: str, connector: Connector) -> bool:
    """Create or update the connector. Return whether it was new or changed. Idempotent by name."""
    if read_config(url, connector.name) == dict(connector.config):
        return False
    _ask(f"{_at(url, connector.name)}/config", method="PUT", body=dict(connector.config))
    return True


def restart(url: str, name: str, *, only_failed: bool) -> None:
    """Restart a connector and its tasks."""
    _ask(f"{_at(url, name)}/restart?includeTasks=true&onlyFailed={str(only_failed).lower()}", method="POST")


def delete(url: str, name: str) -> bool:
    """Delete a connector and its offsets. Return whether it existed."""
    if read_status(url, name).state == "MISSING":
        return False
    _ask(f"{_at(url, name)}/stop", method="PUT")
    _wait(lambda: read_status(url, name).state == "STOPPED" and not read_status(url, name).tasks, what=f"{name} to stop")
    _ask(f"{_at(url, name)}/offsets", method="DELETE")
    _ask(_at(url, name), method="DELETE", fine=(404,))
    _wait(lambda: read_status(url, name).state == "MISSING", what=f"{name} to be deleted")
    return True


def wait_until_running(url: str, name: str) -> ConnectorStatus:
    """Wait until a connector runs or has failed, and return its status."""

    def has_settled() -> bool:
        status = read_status(url, name)
        return status.is_running or bool(status.problems)

    _wait(has_settled, what=f"{name} to run")
    return read_status(url, name)


def _at(url: str, name: str) -> str:
    return f"{url}/connectors/{quote(name, safe='')}"


def _ask(url: str, *, method: str = "GET", body: object = None, fine: tuple[int, ...] = ()) -> Answer:
    """Return a successful response. Retries transient statuses for a minute, then raises a ServiceError."""

    def attempt() -> Answer:
        answer = ask(url, method=method, body=body)
        if answer.is_fine or answer.status in fine:
            return answer
        error_class = _PassingError if answer.status in _PASSING else ServiceError
        raise error_class(
            f"Kafka Connect refused the request: {answer.message}",
            where=f"{method} {without_secrets(url)}",
            next_step="Read its log: headrace logs connect",
        )

    return CONNECT_REQUESTS.retry(attempt, on=lambda error: isinstance(error, _PassingError))


def _wait(done: Callable[[], bool], *, what: str) -> None:
    deadline = time.monotonic() + _WAIT_SECONDS
    while not done():
        if time.monotonic() > deadline:
            raise UnavailableError(
                f"timeout: waited {_WAIT_SECONDS:.0f} s for {what}",
                where="Kafka Connect",
                next_step="Read its log: headrace logs connect",
            )
        time.sleep(_PAUSE_SECONDS)


class _PassingError(ServiceError):
    """Connect answered with a transient status."""


def _first_line(trace: str | None) -> str | None:
    """Return the most specific line of a trace: its last cause, else its first line."""
    lines = [line.strip() for line in (trace or "").splitlines() if line.strip()]
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    return (causes or lines or [""])[-1 if causes else 0][:300] or None
