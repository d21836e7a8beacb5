"""Connection properties of the catalog and its object store, for PyIceberg and for Spark, from the same settings.

No other module knows the names of these properties. Headrace doesn't request vended credentials from a REST catalog: they
expire after an hour, and landing runs for days. It uses the keys of the environment everywhere.
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
"""Timeouts of requests to a REST catalog. A catalog that hangs, as Iceberg's own does during an outage of its object store,
counts as unavailable."""
_BY_CREDENTIAL = {"token-exchange-enabled": "false"}
"""Iceberg's Java library would exchange its token for a new one, which most token servers refuse: builds would fail when the
first token expires. Without the exchange it requests every token with the credential."""
_SQLITE = "sqlite:///"
_PREFIX = f"spark.sql.catalog.{CATALOG_NAME}"


def sqlite_path(settings: Settings) -> Path | None:
    """Return the catalog's SQLite file, or None for another kind of catalog."""
    is_file = settings.catalog_type == "sql" and settings.catalog_uri.startswith(_SQLITE)
    return Path(settings.catalog_uri.removeprefix(_SQLITE)) if is_file else None


def catalog_properties(settings: Settings) -> dict[str, str]:
    """Return the catalog's properties for PyIceberg."""
    properties = {"warehouse": settings.warehouse}
    if settings.catalog_type == "sql":
        properties["uri"] = _database(settings)
    elif settings.catalog_type == "rest":
        properties |= _rest(settings) | {"header.X-Iceberg-Access-Delegation": ""}
    elif settings.catalog_type == "hive":
        properties["uri"] = settings.catalog_uri
    elif settings.catalog_type == "glue":
        properties["client.region"] = settings.s3_region
    if settings.is_on_s3:
        properties |= {"s3.region": settings.s3_region, "s3.force-virtual-addressing": str(not settings.s3_path_style).lower()}
        properties |= _s3(settings)
    return {**properties, **settings.catalog_properties}


def catalog_conf(settings: Settings) -> dict[str, str]:
    """Return Spark's configuration of the catalog. Spark's table cache is off, because landing commits outside of Spark.

    The configuration contains secrets: set it on a running session, never on the command line of a process.
    """
    conf = {"type": "jdbc" if settings.catalog_type == "sql" else settings.catalog_type, "warehouse": settings.warehouse}
    if settings.catalog_type == "sql":
        conf |= _jdbc(settings)
    elif settings.catalog_type == "rest":
        conf |= _rest(settings) | (_BY_CREDENTIAL if settings.catalog_credential else {})
    elif settings.catalog_type == "hive":
        conf["uri"] = settings.catalog_uri
    if settings.is_on_s3 or settings.catalog_type == "glue":
        conf["client.region"] = settings.s3_region
    if settings.is_on_s3:
        conf |= {"io-impl": "org.apache.iceberg.aws.s3.S3FileIO", "s3.path-style-access": str(settings.s3_path_style).lower()}
        conf |= _s3(settings)
    conf = {**conf, "cache-enabled": "false", **settings.catalog_properties}
    return {_PREFIX: "org.apache.iceberg.spark.SparkCatalog"} | {f"{_PREFIX}.{name}": value for name, value in conf.items()}


def secret_names(settings: Settings) -> dict[str, str]:
    """Return the names in `catalog_conf` that hold secrets, each with an empty value, for starting Spark.

    Spark's event log redacts a session's setting only if the application was started with a setting of that name.
    """
    conf = catalog_conf(settings).items()
    return {name: "" for name, value in conf if re.search(SENSITIVE, name) and value not in ("true", "false")}


def _rest(settings: Settings) -> dict[str, str]:
    """Return the REST catalog's properties for both. They request a token with the credential, and another when it expires."""
    values = {
        "uri": settings.catalog_uri,
        "warehouse": settings.catalog_warehouse or settings.warehouse,
        "scope": settings.catalog_scope,
        "oauth2-server-uri": settings.catalog_oauth2_server_uri,
        "credential": settings.catalog_credential or "",
        "token": settings.catalog_token or "",
    }
    return _REST_BOUNDS | {name: value for name, value in values.items() if value}


def _s3(settings: Settings) -> dict[str, str]:
    """Return the object store's properties for both. Without keys they use the AWS default credential chain."""
    values = {
        "s3.endpoint": settings.s3_endpoint,
        "s3.access-key-id": settings.s3_access_key_id or "",
        "s3.secret-access-key": settings.s3_secret_access_key or "",
        "s3.session-token": settings.s3_session_token or "",
    }
    return {name: value for name, value in values.items() if value}


def _database(settings: Settings) -> str:
    """Return the SQLAlchemy URL of the catalog's database."""
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
            next_step="Use SQLite (sqlite:///path/catalog.db) or Postgres (postgresql://host/database), or remove the setting.",
        )
    user, password = settings.catalog_login
    values = {"uri": settings.catalog_jdbc_uri, "jdbc.schema-version": "V1", "jdbc.user": user, "jdbc.password": password}
    return {name: value for name, value in values.items() if value}
