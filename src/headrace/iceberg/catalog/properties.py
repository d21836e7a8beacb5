"""How a catalog and its object store are reached, as PyIceberg and as Spark want to be told: both from the same settings.

No other module knows the names of these properties. Credentials that a REST catalog hands out with a table are not asked for:
they hold for an hour, and landing goes on for days; the keys of the environment are used everywhere.
"""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import quote, urlunsplit

from headrace.errors import SettingsError
from headrace.settings import SENSITIVE, Settings

CATALOG_NAME = "headrace"
REST_CONNECT_MS, REST_ANSWER_MS = "rest.client.connection-timeout-ms", "rest.client.socket-timeout-ms"
_REST_BOUNDS = {REST_CONNECT_MS: "5000", REST_ANSWER_MS: "20000"}
"""For how long a REST catalog is waited for: one that hangs, as Iceberg's own does while its object store is away, is away."""
_BY_CREDENTIAL = {"token-exchange-enabled": "false"}
"""Iceberg's Java library would offer its token for the next one, which most who give tokens refuse: then builds could go on
until the first one ends. With the credential it asks as it asked for the first."""
_SQLITE = "sqlite:///"
_PREFIX = f"spark.sql.catalog.{CATALOG_NAME}"


def sqlite_path(settings: Settings) -> Path | None:
    """Return the file that the catalog is in, or None where it is not SQLite."""
    is_file = settings.catalog_type == "sql" and settings.catalog_uri.startswith(_SQLITE)
    return Path(settings.catalog_uri.removeprefix(_SQLITE)) if is_file else None


def catalog_properties(settings: Settings) -> dict[str, str]:
    """Return the catalog's properties as PyIceberg has them."""
    found = {"warehouse": settings.warehouse}
    if settings.catalog_type == "sql":
        found["uri"] = _database(settings)
    elif settings.catalog_type == "rest":
        found |= _rest(settings) | {"header.X-Iceberg-Access-Delegation": ""}
    elif settings.catalog_type == "hive":
        found["uri"] = settings.catalog_uri
    elif settings.catalog_type == "glue":
        found["client.region"] = settings.s3_region
    if settings.is_on_s3:
        found |= {"s3.region": settings.s3_region, "s3.force-virtual-addressing": str(not settings.s3_path_style).lower()}
        found |= _s3(settings)
    return {**found, **settings.catalog_properties}


def catalog_conf(settings: Settings) -> dict[str, str]:
    """Return Spark's configuration of the catalog. Nothing is cached: landing commits beside Spark.

    It has secrets in it, so it is set on a session that runs, and never where a process starts.
    """
    found = {"type": "jdbc" if settings.catalog_type == "sql" else settings.catalog_type, "warehouse": settings.warehouse}
    if settings.catalog_type == "sql":
        found |= _jdbc(settings)
    elif settings.catalog_type == "rest":
        found |= _rest(settings) | (_BY_CREDENTIAL if settings.catalog_credential else {})
    elif settings.catalog_type == "hive":
        found["uri"] = settings.catalog_uri
    if settings.is_on_s3 or settings.catalog_type == "glue":
        found["client.region"] = settings.s3_region
    if settings.is_on_s3:
        found |= {"io-impl": "org.apache.iceberg.aws.s3.S3FileIO", "s3.path-style-access": str(settings.s3_path_style).lower()}
        found |= _s3(settings)
    found = {**found, "cache-enabled": "false", **settings.catalog_properties}
    return {_PREFIX: "org.apache.iceberg.spark.SparkCatalog"} | {f"{_PREFIX}.{name}": value for name, value in found.items()}


def secret_names(settings: Settings) -> dict[str, str]:
    """Return those names of `catalog_conf` that hold secrets, each with an empty value, for Spark's start.

    Spark's event log hides what a session sets only under names that the application was started with.
    """
    told = catalog_conf(settings).items()
    return {name: "" for name, value in told if re.search(SENSITIVE, name) and value not in ("true", "false")}


def _rest(settings: Settings) -> dict[str, str]:
    """What both are told of a REST catalog: they ask for a token with the credential, and for another when it ends."""
    found = {
        "uri": settings.catalog_uri,
        "warehouse": settings.catalog_warehouse or settings.warehouse,
        "scope": settings.catalog_scope,
        "oauth2-server-uri": settings.catalog_oauth2_server_uri,
        "credential": settings.catalog_credential or "",
        "token": settings.catalog_token or "",
    }
    return _REST_BOUNDS | {name: value for name, value in found.items() if value}


def _s3(settings: Settings) -> dict[str, str]:
    """What both are told of the object store; without keys each looks for them where Amazon's own tools do."""
    found = {
        "s3.endpoint": settings.s3_endpoint,
        "s3.access-key-id": settings.s3_access_key_id or "",
        "s3.secret-access-key": settings.s3_secret_access_key or "",
        "s3.session-token": settings.s3_session_token or "",
    }
    return {name: value for name, value in found.items() if value}


def _database(settings: Settings) -> str:
    """Return the address of the catalog's database as SQLAlchemy has it."""
    if sqlite_path(settings):
        return f"{settings.catalog_uri}?timeout=30"
    if not settings.is_catalog_in_postgres:
        return settings.catalog_uri
    user, password = settings.catalog_login
    host, path, query = settings.catalog_address
    login = f"{quote(user, safe='')}{':' + quote(password, safe='') if password else ''}@" if user else ""
    return urlunsplit(("postgresql+psycopg", login + host, path, query, ""))


def _jdbc(settings: Settings) -> dict[str, str]:
    path = sqlite_path(settings)
    if path is not None:
        return {"uri": f"jdbc:sqlite:{path}?journal_mode=WAL&busy_timeout=30000", "jdbc.schema-version": "V1"}
    if not settings.is_catalog_in_postgres:
        raise SettingsError(
            f"Spark can't open the catalog {settings.catalog_uri.split(':', 1)[0]}:…",
            where="catalog.uri",
            next_step="Use SQLite (sqlite:///path/catalog.db) or Postgres (postgresql://host/database), or leave it out.",
        )
    user, password = settings.catalog_login
    found = {"uri": settings.catalog_jdbc_uri, "jdbc.schema-version": "V1", "jdbc.user": user, "jdbc.password": password}
    return {name: value for name, value in found.items() if value}
