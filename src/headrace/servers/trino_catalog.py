"""The lake's catalog for Trino: its properties without secrets, and the environment variables with the secrets.

Property names are from Trino's documentation (Iceberg connector, metastores, S3 file system support). Trino looks up the keys
of the object store like the AWS SDK, which reads the environment first.
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
    """The properties of the catalog, and the environment variables that they refer to."""

    properties: Mapping[str, str]
    environ: Mapping[str, str] = field(default_factory=dict, repr=False)


def trino_catalog(settings: Settings) -> TrinoCatalog:
    """Return the catalog of these settings, read-only. Raises a SettingsError if Trino does not support it."""
    catalog = _CATALOGS[settings.catalog_type](settings)
    properties = {"connector.name": "iceberg", "iceberg.security": "read_only", **catalog.properties, **_files(settings)}
    return TrinoCatalog(properties, {**catalog.environ, **_keys(settings)})


def _database(settings: Settings) -> TrinoCatalog:
    """Return the properties of a SQL catalog."""
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
            f"Trino does not support catalogs in {uri.split(':', 1)[0]}:…",
            where="catalog.uri",
            next_step="Use SQLite (sqlite:///path/catalog.db) or Postgres (postgresql://host/database), or unset it.",
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
    """Return the properties of a REST catalog with nested namespaces; Trino gets a token with the credential."""
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
    security = {
        "security": "OAUTH2",
        "oauth2.scope": settings.catalog_scope,
        "oauth2.server-uri": settings.catalog_oauth2_server_uri,
        "oauth2.credential": _from_environ(_CREDENTIAL) if _CREDENTIAL in environ else "",
        "oauth2.token": _from_environ(_TOKEN) if _TOKEN in environ else "",
    }
    properties |= {f"iceberg.rest-catalog.{name}": value for name, value in security.items() if value}
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
    """Return the properties of Trino's file system; local paths are absolute."""
    if not settings.is_on_s3:
        return {"fs.native-local.enabled": "true", "local.location": "/"}
    properties = {
        "fs.native-s3.enabled": "true",
        "s3.endpoint": settings.s3_endpoint,
        "s3.region": settings.s3_region,
        "s3.path-style-access": str(settings.s3_path_style).lower(),
    }
    return {name: value for name, value in properties.items() if value}


def _keys(settings: Settings) -> dict[str, str]:
    """Return the variables with the keys of the object store, if set; the session token too, so that no other one is used."""
    if not settings.s3_access_key_id:
        return {}
    return {
        "AWS_ACCESS_KEY_ID": settings.s3_access_key_id,
        "AWS_SECRET_ACCESS_KEY": settings.s3_secret_access_key or "",
        "AWS_SESSION_TOKEN": settings.s3_session_token or "",
    }


def _from_environ(variable: str) -> str:
    """Return the reference to an environment variable in Trino's property files."""
    return f"${{ENV:{variable}}}"
