"""The connection settings of this home's servers for clients: addresses, users and password files."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from psycopg.conninfo import conninfo_to_dict

from headrace.http.client import split_login
from headrace.servers import connect, connect_worker, kafka, kafka_server, postgres, registry
from headrace.settings import Settings


@dataclass(frozen=True)
class ClientVariable:
    """An environment variable of a client; `secret` is the file with its value, if it is a secret."""

    name: str
    value: str = ""
    secret: Path | None = None

    def read(self) -> str:
        """Return the value; read a secret from its file."""
        return self.secret.read_text(encoding="utf-8").strip() if self.secret else self.value

    def as_export(self, *, show_secret: bool) -> str:
        """Return a shell export. Unless `show_secret` is set, the shell reads a secret from its file."""
        if self.secret is not None and not show_secret:
            return f'export {self.name}="$(cat {shlex.quote(str(self.secret))})"'
        return f"export {self.name}={shlex.quote(self.read())}"


def list_client_variables(settings: Settings) -> tuple[ClientVariable, ...]:
    """Return the variables of the servers that run in this home, without the user's own servers."""
    return (*_kafka(settings), *_registry(settings), *_connect(settings), *_postgres(settings))


def _kafka(settings: Settings) -> Iterator[ClientVariable]:
    service = None if settings.kafka_bootstrap_servers else kafka.running_kafka(settings)
    if service is None:
        return
    yield ClientVariable("KAFKA_BROKERS", service.bootstrap_servers)
    yield ClientVariable("KAFKA_SECURITY_PROTOCOL", "SASL_PLAINTEXT" if service.secure else "PLAINTEXT")
    if service.secure:
        yield ClientVariable("KAFKA_SASL_MECHANISM", "PLAIN")
        yield ClientVariable("KAFKA_SASL_USERNAME", kafka_server.USER)
        yield ClientVariable("KAFKA_SASL_PASSWORD", secret=settings.home / kafka.NAME / "password")


def _registry(settings: Settings) -> Iterator[ClientVariable]:
    service = None if settings.registry_url else registry.running_registry(settings)
    if service is None:
        return
    yield ClientVariable("SCHEMA_REGISTRY_URL", split_login(registry.find_registry(settings) or "")[0])
    if service.secure:
        yield ClientVariable("SCHEMA_REGISTRY_USER", registry.USER)
        yield ClientVariable("SCHEMA_REGISTRY_PASSWORD", secret=settings.home / registry.NAME / "password")


def _connect(settings: Settings) -> Iterator[ClientVariable]:
    if settings.connect_url or connect.running_connect(settings) is None:
        return
    yield ClientVariable("CONNECT_URL", split_login(connect.find_connect(settings) or "")[0])
    yield ClientVariable("CONNECT_USER", connect_worker.USER)
    yield ClientVariable("CONNECT_PASSWORD", secret=settings.home / connect.NAME / "password")


def _postgres(settings: Settings) -> Iterator[ClientVariable]:
    service = None if settings.postgres_url else postgres.running_postgres(settings)
    if service is None:
        return
    parts = {name: str(value) for name, value in conninfo_to_dict(service.dsn).items()}
    for name, variable in (("host", "PGHOST"), ("port", "PGPORT"), ("dbname", "PGDATABASE"), ("user", "PGUSER")):
        yield ClientVariable(variable, parts[name])
    password_file = settings.home / postgres.NAME / "password"
    if settings.postgres_password is None and password_file.exists():
        yield ClientVariable("PGPASSWORD", secret=password_file)
