"""The lake's catalog as Trino has it: its properties, with no secret in them, and the environment that has the secrets.

The names are those of Trino's documentation (Iceberg connector, metastores, S3 file system support). Trino finds the keys of
the object store as Amazon's own tools do, which read the environment first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from headrace.errors import SettingsError
from headrace.settings import Settings

CATALOG = "headrace"
_SQLITE = "sqlite:///"
_CREDENTIAL, _TOKEN, _PASSWORD = "HEADRACE_CATALOG_CREDENTIAL", "HEADRACE_CATALOG_TOKEN", "HEADRACE_CATALOG_PASSWORD"


@dataclass(frozen=True)
class TrinoCatalog:
    """The properties of the catalog that all tables are in, and the variables that Trino's process needs for them."""

    properties: Mapping[str, str]
    environ: Mapping[str, str] = field(default_factory=dict, repr=False)


def trino_catalog(settings: Settings) -> TrinoCatalog:
    """Return the catalog of these settings as one that can only be read; one that Trino can't open is a SettingsError."""
    catalog = _CATALOGS[settings.catalog_type](settings)
    properties = {"connector.name": "iceberg", "iceberg.security": "read_only", **catalog.properties, **_files(settings)}
    return TrinoCatalog(properties, {**catalog.environ, **_keys(settings)})


def _database(settings: Settings) -> TrinoCatalog:
    """Return a catalog that is in a database."""
    uri = settings.catalog_uri
    properties = {
        "iceberg.catalog.type": "jdbc",
        "iceberg.jdbc-catalog.catalog-name": CATALOG,
        "iceberg.jdbc-catalog.default-warehouse-dir": settings.warehouse,
    }
    if uri.startswith(_SQLITE):
        file = f"jdbc:sqlite:{uri.removeprefix(_SQLITE)}?open_mode=1&busy_timeout=30000"
        return TrinoCatalog(properties | _driver("org.sqlite.JDBC", file))
    if not settings.is_catalog_in_postgres:
        raise SettingsError(
            f"Trino can't open the catalog {uri.split(':', 1)[0]}:…",
            where="catalog.uri",
            next_step="Use SQLite (sqlite:///path/catalog.db) or Postgres (postgresql://host/database), or leave it out.",
        )
    user, password = settings.catalog_login
    properties |= _driver("org.postgresql.Driver", settings.catalog_jdbc_uri)
    if user:
        properties["iceberg.jdbc-catalog.connection-user"] = user
    if password:
        properties["iceberg.jdbc-catalog.connection-password"] = _from_environ(_PASSWORD)
    return TrinoCatalog(properties, {_PASSWORD: password} if password else {})


def _driver(name: str, address: str) -> dict[str, str]:
    return {"iceberg.jdbc-catalog.driver-class": name, "iceberg.jdbc-catalog.connection-url": address}


def _rest(settings: Settings) -> TrinoCatalog:
    """Return a REST catalog, its namespaces in namespaces too; Trino asks for a token with the credential."""
    properties = {
        "iceberg.catalog.type": "rest",
        "iceberg.rest-catalog.uri": settings.catalog_uri,
        "iceberg.rest-catalog.warehouse": settings.catalog_warehouse or settings.warehouse,
        "iceberg.rest-catalog.nested-namespace-enabled": "true",
    }
    environ = {_CREDENTIAL: settings.catalog_credential or "", _TOKEN: settings.catalog_token or ""}
    environ = {name: value for name, value in environ.items() if value}
    if not environ:
        return TrinoCatalog(properties)
    told = {
        "security": "OAUTH2",
        "oauth2.scope": settings.catalog_scope,
        "oauth2.server-uri": settings.catalog_oauth2_server_uri,
        "oauth2.credential": _from_environ(_CREDENTIAL) if _CREDENTIAL in environ else "",
        "oauth2.token": _from_environ(_TOKEN) if _TOKEN in environ else "",
    }
    properties |= {f"iceberg.rest-catalog.{name}": value for name, value in told.items() if value}
    return TrinoCatalog(properties, environ)


def _hive(settings: Settings) -> TrinoCatalog:
    return TrinoCatalog({"iceberg.catalog.type": "hive_metastore", "hive.metastore.uri": settings.catalog_uri})


def _glue(settings: Settings) -> TrinoCatalog:
    properties = {
        "iceberg.catalog.type": "glue",
        "hive.metastore.glue.region": settings.s3_region,
        "hive.metastore.glue.default-warehouse-dir": settings.warehouse,
    }
    return TrinoCatalog(properties)


_CATALOGS: Mapping[str, Callable[[Settings], TrinoCatalog]] = {"sql": _database, "rest": _rest, "hive": _hive, "glue": _glue}


def _files(settings: Settings) -> dict[str, str]:
    """Return how Trino reads the warehouse's files: addresses of this machine's begin at its root."""
    if not settings.is_on_s3:
        return {"fs.native-local.enabled": "true", "local.location": "/"}
    found = {
        "fs.native-s3.enabled": "true",
        "s3.endpoint": settings.s3_endpoint,
        "s3.region": settings.s3_region,
        "s3.path-style-access": str(settings.s3_path_style).lower(),
    }
    return {name: value for name, value in found.items() if value}


def _keys(settings: Settings) -> dict[str, str]:
    """Return the keys of the object store, where there are some; a token of other keys must not go with them."""
    if not settings.s3_access_key_id:
        return {}
    return {
        "AWS_ACCESS_KEY_ID": settings.s3_access_key_id,
        "AWS_SECRET_ACCESS_KEY": settings.s3_secret_access_key or "",
        "AWS_SESSION_TOKEN": settings.s3_session_token or "",
    }


def _from_environ(variable: str) -> str:
    """Return a value as Trino's files name one that is in its environment."""
    return f"${{ENV:{variable}}}"
