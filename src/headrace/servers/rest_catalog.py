"""The stack's catalog: Iceberg's own REST catalog on a database of the home's Postgres (for its lifecycle see embedded.py).

The server is the servlet with which Iceberg tests REST clients, in a Jetty configured by `rest_catalog.xml`. Its own main
program would listen on all addresses and log its passwords. It requires no token.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from headrace.errors import ServiceError
from headrace.http.client import is_fine
from headrace.servers import embedded, ports, process
from headrace.servers.embedded import Embedded, Report, RunningService
from headrace.servers.failed_start import signs_in_stack
from headrace.servers.jars import resolve_jars
from headrace.servers.java import SERVER_OPTIONS, SIMPLE_LOG, choose_java, clear_temporary
from headrace.servers.launcher import Launcher
from headrace.servers.object_store import BUCKET, REGION, find_keys, running_object_store
from headrace.servers.postgres import find_postgres
from headrace.settings import Settings

NAME = "catalog"
DATABASE = "iceberg_catalog"
WAREHOUSE = f"s3://{BUCKET}/warehouse"
_DESCRIPTION = Path(__file__).with_name("rest_catalog.xml")
_QUIET = "-Dorg.slf4j.simpleLogger.log.org.apache.iceberg.rest.RESTCatalogServlet=off"
"""Without this, it logs every 404 for a missing table as an error of 60 lines."""


@dataclass(frozen=True)
class RestCatalogService(RunningService):
    """A running catalog."""

    @property
    def url(self) -> str:
        return f"http://{ports.HOST}:{self.port}"


def running_rest_catalog(settings: Settings) -> RestCatalogService | None:
    """Return this home's catalog if it runs and has been ready, else None."""
    state = embedded.running(SERVER, settings)
    return None if state is None else RestCatalogService.of(state)


def _prepare(settings: Settings, report: Report) -> Callable[[int], process.Launch]:
    folder = settings.home / NAME
    dsn, store = find_postgres(settings), running_object_store(settings)
    if dsn is None or store is None:
        raise ServiceError(
            "the catalog requires Postgres and the object store, which are not running",
            where=NAME,
            next_step="Run: headrace up --profile stack",
        )
    _make_database(dsn)
    clear_temporary(folder)
    parts, keys = conninfo_to_dict(dsn), find_keys(settings)
    jars = resolve_jars(NAME, report=report)
    java = choose_java(os.environ).program
    environ = {
        **os.environ,
        "HEADRACE_CATALOG_DATABASE": f"jdbc:postgresql://{parts.get('host', 'localhost')}:{parts.get('port', 5432)}/{DATABASE}",
        "HEADRACE_CATALOG_USER": str(parts.get("user", "")),
        "HEADRACE_CATALOG_PASSWORD": str(parts.get("password", "")),
        "HEADRACE_WAREHOUSE": WAREHOUSE,
        "HEADRACE_S3_ENDPOINT": store.endpoint,
        "AWS_ACCESS_KEY_ID": keys.access_key,
        "AWS_SECRET_ACCESS_KEY": keys.secret_key,
        "AWS_REGION": REGION,
    }

    def launch(port: int) -> process.Launch:
        class_path = os.pathsep.join(map(str, jars))
        options = ("-Xms32m", "-Xmx384m", *SERVER_OPTIONS, *SIMPLE_LOG, _QUIET, f"-Dheadrace.port={port}")
        command = (str(java), *options, "-cp", class_path, "org.eclipse.jetty.xml.XmlConfiguration", str(_DESCRIPTION))
        return process.Launch(name=NAME, command=command, folder=folder, environ=environ, port=port)

    return launch


def _make_database(dsn: str) -> None:
    """Create the catalog's database if it does not exist."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        if connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [DATABASE]).fetchone() is None:
            connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(DATABASE)))


def _is_ready(settings: Settings, state: process.ServiceState) -> bool:
    return is_fine(f"http://{ports.HOST}:{state.port}/v1/config", timeout=5.0)


_SIGNS = signs_in_stack(NAME, memory_mb=600)
_LAUNCHER = Launcher(
    NAME, "The catalog", port=lambda settings: 8181, prepare=_prepare, is_ready=_is_ready, signs=lambda home: _SIGNS
)
SERVER = Embedded(NAME, _LAUNCHER.title, launch=_LAUNCHER, answers=_is_ready)
