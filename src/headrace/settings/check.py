"""Check that the values of settings fit together."""

from __future__ import annotations

from headrace.errors import SettingsError
from headrace.settings.values import SECRETS, Settings


def check_settings(settings: Settings) -> None:
    """Raise a SettingsError for settings that conflict, or that require each other."""
    _check_catalog(settings)
    _check_warehouse(settings)
    _check_kafka(settings)


def _check_catalog(settings: Settings) -> None:
    addresses = {"rest": "http(s)://…", "hive": "thrift://host:9083"}
    if settings.catalog_type in addresses and not settings.catalog_uri:
        raise SettingsError(
            f"catalog.type {settings.catalog_type} requires catalog.uri",
            where=settings.origins["catalog.type"],
            next_step=f"Set catalog.uri to {addresses[settings.catalog_type]}",
        )
    if settings.catalog_type == "sql" and settings.catalog_uri.startswith(("http:", "https:", "thrift:")):
        raise SettingsError(
            "catalog.type sql requires the URI of a database",
            where=settings.origins["catalog.uri"],
            next_step="Set catalog.type to rest (http://…) or hive (thrift://…), or catalog.uri to postgresql://host/database.",
        )


def _check_warehouse(settings: Settings) -> None:
    scheme = settings.warehouse.partition("://")[0] if "://" in settings.warehouse else "file"
    if scheme not in ("file", "s3"):
        raise SettingsError(
            f"unsupported warehouse scheme {scheme}://",
            where=settings.origins["warehouse"],
            next_step="Set warehouse to s3://bucket/folder, or to file:///folder.",
        )


def _check_kafka(settings: Settings) -> None:
    if settings.kafka_security_protocol.startswith("SASL") and not (settings.kafka_username and settings.kafka_password):
        raise SettingsError(
            f"kafka.security_protocol {settings.kafka_security_protocol} requires a username and a password",
            where=settings.origins["kafka.security_protocol"],
            next_step=f"Set {SECRETS['kafka_username']} and {SECRETS['kafka_password']} in the environment.",
        )
    if settings.kafka_security_protocol != "PLAINTEXT" and not settings.kafka_bootstrap_servers:
        raise SettingsError(
            "the embedded Kafka does not support kafka.security_protocol",
            where=settings.origins["kafka.security_protocol"],
            next_step="Set kafka.bootstrap_servers to your own Kafka, or remove the security settings.",
        )
