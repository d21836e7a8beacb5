"""A lake on the stack's REST catalog and S3 server alone: what commits depend on, without a Spark cluster and a Kafka."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from headrace.iceberg.catalog.tables import list_tables, open_catalog
from headrace.servers import embedded, object_store, postgres, rest_catalog
from headrace.settings import STACK, Settings, load_settings

SERVERS = (postgres.SERVER, object_store.SERVER, rest_catalog.SERVER)


@contextmanager
def running_rest_catalog(folder: Path) -> Iterator[Settings]:
    """Yield the settings that lead to a REST catalog and an S3 server, which end with the block."""
    settings = load_settings(flags={"profile": STACK, "home": str(folder / ".headrace")}, environ={}, folder=folder)
    with ExitStack() as stack:
        for server in SERVERS:
            stack.callback(embedded.stop, server, settings, report=print)
            embedded.start(server, settings, detached=True, report=print)
        store, catalog = object_store.running_object_store(settings), rest_catalog.running_rest_catalog(settings)
        assert store is not None
        assert catalog is not None
        keys = object_store.find_keys(settings)
        yield replace(
            settings,
            catalog_type="rest",
            catalog_uri=catalog.url,
            warehouse=rest_catalog.WAREHOUSE,
            s3_endpoint=store.endpoint,
            s3_region=object_store.REGION,
            s3_path_style=True,
            s3_access_key_id=keys.access_key,
            s3_secret_access_key=keys.secret_key,
        )


def empty_lake(settings: Settings, folder: Path) -> Settings:
    """Drop all tables of the catalog, and return its settings with a home and a warehouse that nothing is in."""
    catalog = open_catalog(settings)
    for table in list_tables(catalog):
        catalog.drop_table(table)
    return replace(settings, home=folder / ".headrace", warehouse=f"{settings.warehouse}/{uuid.uuid4().hex}")


def lake_environ(settings: Settings) -> dict[str, str]:
    """Return the environment that leads a process to the catalog and the warehouse of these settings, and to their home."""
    environ = {
        "HEADRACE_HOME": str(settings.home),
        "HEADRACE_CATALOG_TYPE": settings.catalog_type,
        "HEADRACE_CATALOG_URI": settings.catalog_uri,
        "HEADRACE_WAREHOUSE": settings.warehouse,
        "HEADRACE_S3_ENDPOINT": settings.s3_endpoint,
        "AWS_ACCESS_KEY_ID": settings.s3_access_key_id or "",
        "AWS_SECRET_ACCESS_KEY": settings.s3_secret_access_key or "",
    }
    return {name: value for name, value in environ.items() if value}
