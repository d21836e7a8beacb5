"""Start and stop all servers of a home, and return the settings of `headrace up --profile stack`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from types import MappingProxyType

from headrace.errors import UnavailableError
from headrace.servers import connect, embedded, kafka, object_store, postgres, registry, rest_catalog, spark_cluster, trino
from headrace.servers.embedded import Embedded, Report
from headrace.settings import STACK, Settings

_ORIGIN = "the stack"


def list_servers(settings: Settings) -> tuple[Embedded, ...]:
    """Return the servers that Headrace can start in this home, in start order: each after its dependencies."""
    cluster = (object_store.SERVER, rest_catalog.SERVER, spark_cluster.SERVER, *spark_cluster.WORKERS)
    first = (kafka.BROKER, postgres.SERVER, *(cluster if settings.profile == STACK else ()))
    return (*first, connect.WORKER, registry.SERVER, trino.SERVER)


def start_stack(settings: Settings, *, report: Report) -> None:
    """Start the stack's servers that don't run; they run until `stop_servers`."""
    for server in _wanted(settings):
        embedded.start(server, settings, detached=True, report=report)


def stop_servers(settings: Settings, *, report: Report) -> int:
    """Stop all servers of this home, each before its dependencies; return how many were running."""
    stopped = 0
    for server in reversed(list_servers(settings)):
        if embedded.stop(server, settings, report=report):
            report(f"{server.title} is stopped")
            stopped += 1
    return stopped


def _wanted(settings: Settings) -> Iterator[Embedded]:
    """Return the servers to start: all except the user's own, and Trino, which starts on demand."""
    own = {
        kafka.NAME: settings.kafka_bootstrap_servers,
        postgres.NAME: settings.postgres_url,
        registry.NAME: settings.registry_url,
        connect.NAME: settings.connect_url,
    }
    return (server for server in list_servers(settings) if not own.get(server.name) and server is not trino.SERVER)


def stack_settings(settings: Settings) -> Settings:
    """Return the settings with the addresses and keys of the stack's servers.

    Raises an UnavailableError if one of them does not run.
    """
    store = object_store.running_object_store(settings)
    catalog = rest_catalog.running_rest_catalog(settings)
    master = spark_cluster.running_master(settings)
    if store is None or catalog is None or master is None:
        raise UnavailableError(
            "the stack is not running, or only in part",
            where=str(settings.home),
            next_step="Run: headrace up --profile stack",
        )
    keys = object_store.find_keys(settings)
    known = ("catalog.type", "catalog.uri", "warehouse", "s3.endpoint", "s3.region", "s3.path_style", "spark.master")
    return replace(
        settings,
        catalog_type="rest",
        catalog_uri=catalog.url,
        warehouse=rest_catalog.WAREHOUSE,
        s3_endpoint=store.endpoint,
        s3_region=object_store.REGION,
        s3_path_style=True,
        s3_access_key_id=keys.access_key,
        s3_secret_access_key=keys.secret_key,
        s3_session_token=None,
        spark_master=master.url,
        spark_conf_dir=spark_cluster.application_conf_dir(settings),
        origins=MappingProxyType({**settings.origins, **dict.fromkeys(known, _ORIGIN)}),
    )
