"""All servers of `headrace up --profile stack` together, and the settings that lead to them."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

from headrace.errors import UnavailableError
from headrace.services import connect, embedded, kafka, object_store, postgres, registry, rest_catalog, spark_cluster
from headrace.services.embedded import Embedded, Report
from headrace.settings import Settings

_ORIGIN = "the stack"


def list_servers(settings: Settings) -> tuple[Embedded, ...]:
    """Gives back the stack's servers in the order in which they start: each after those that it needs.

    Where settings name a Kafka, a Postgres, a registry or a Connect of the user's own, that one is used.
    """
    own = {
        kafka.BROKER: settings.kafka_bootstrap_servers,
        postgres.SERVER: settings.postgres_url,
        registry.SERVER: settings.registry_url,
        connect.WORKER: settings.connect_url,
    }
    of_the_stack = (object_store.SERVER, rest_catalog.SERVER, spark_cluster.SERVER, *spark_cluster.WORKERS)
    servers = (kafka.BROKER, postgres.SERVER, *of_the_stack, registry.SERVER, connect.WORKER)
    return tuple(each for each in servers if not own.get(each))


def start_stack(settings: Settings, *, report: Report) -> None:
    """Starts the stack's servers that don't run; they live until `stop_stack`."""
    for server in list_servers(settings):
        embedded.start(server, settings, detached=True, report=report)


def stop_stack(settings: Settings, *, report: Report) -> int:
    """Gives back how many of the stack's servers ran; all are stopped, each before those that it needs."""
    stopped = 0
    for server in reversed(list_servers(settings)):
        if embedded.stop(server, settings, report=report):
            report(f"{server.title} is stopped")
            stopped += 1
    return stopped


def stack_settings(settings: Settings) -> Settings:
    """Gives back the settings with where the stack's servers are, and the keys to them; one that does not run is an
    UnavailableError."""
    store = object_store.running_object_store(settings)
    catalog = rest_catalog.running_rest_catalog(settings)
    master = spark_cluster.running_master(settings)
    if store is None or catalog is None or master is None:
        found = {object_store.NAME: store, rest_catalog.NAME: catalog, spark_cluster.MASTER: master}
        raise UnavailableError(
            f"the stack does not run: {', '.join(name for name, each in found.items() if each is None)}",
            where=str(settings.home),
            next_step="Run: headrace --profile stack up",
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
        spark_master=master.url,
        spark_conf=MappingProxyType({**spark_cluster.application_conf(settings), **settings.spark_conf}),
        origins=MappingProxyType({**settings.origins, **dict.fromkeys(known, _ORIGIN)}),
    )
