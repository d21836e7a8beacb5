"""The lake's catalog as Trino has it: its properties, with no secret in them."""

from __future__ import annotations

from headrace.errors import SettingsError
from headrace.settings import Settings

CATALOG = "headrace"
_SQLITE = "sqlite:///"


def catalog_settings(settings: Settings) -> dict[str, str]:
    """Gives back the properties of the catalog that all tables are in, as one that can only be read."""
    return {
        "connector.name": "iceberg",
        "iceberg.security": "read_only",
        **_catalog(settings),
        **_files(settings),
    }


def _catalog(settings: Settings) -> dict[str, str]:
    uri = settings.catalog_uri
    if not uri.startswith(_SQLITE):
        raise SettingsError(
            f"Trino can't open the catalog {uri.split(':', 1)[0]}:…",
            where="catalog.uri",
            next_step="Use a SQLite catalog (sqlite:///path/catalog.db), or leave catalog.uri out.",
        )
    return {
        "iceberg.catalog.type": "jdbc",
        "iceberg.jdbc-catalog.driver-class": "org.sqlite.JDBC",
        "iceberg.jdbc-catalog.connection-url": f"jdbc:sqlite:{uri.removeprefix(_SQLITE)}?open_mode=1&busy_timeout=30000",
        "iceberg.jdbc-catalog.catalog-name": CATALOG,
        "iceberg.jdbc-catalog.default-warehouse-dir": settings.warehouse,
    }


def _files(settings: Settings) -> dict[str, str]:
    """Gives back how Trino reads the warehouse's files: addresses of this machine's begin at its root."""
    return {"fs.native-local.enabled": "true", "local.location": "/"}
