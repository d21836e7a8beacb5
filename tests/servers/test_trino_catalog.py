"""The properties of Trino's catalog. Their names are from its documentation: trino.io/docs (Iceberg connector,
metastores, S3 file system support, secrets).
"""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.errors import SettingsError
from headrace.servers.trino_catalog import trino_catalog
from headrace.settings import load_settings

Named = dict[str, str]
KEYS = {"AWS_ACCESS_KEY_ID": "key-of-mine", "AWS_SECRET_ACCESS_KEY": "secret-of-mine"}
S3 = {"HEADRACE_WAREHOUSE": "s3://lake/tables", "HEADRACE_S3_ENDPOINT": "http://store:9000", "AWS_REGION": "eu-west-1"}
COMMON = {"connector.name": "iceberg", "iceberg.security": "read_only"}
IN_STORE = {
    **COMMON,
    "fs.native-s3.enabled": "true",
    "s3.endpoint": "http://store:9000",
    "s3.region": "eu-west-1",
    "s3.path-style-access": "true",
}
REST = {
    "iceberg.catalog.type": "rest",
    "iceberg.rest-catalog.uri": "https://catalog/api",
    "iceberg.rest-catalog.warehouse": "main",
    "iceberg.rest-catalog.nested-namespace-enabled": "true",
}
TO_REST = {
    "HEADRACE_CATALOG_TYPE": "rest",
    "HEADRACE_CATALOG_URI": "https://catalog/api",
    "HEADRACE_CATALOG_WAREHOUSE": "main",
}
JDBC = {
    "iceberg.catalog.type": "jdbc",
    "iceberg.jdbc-catalog.catalog-name": "headrace",
    "iceberg.jdbc-catalog.default-warehouse-dir": "s3://lake/tables",
}


@pytest.mark.parametrize(
    ("environ", "properties", "variables"),
    [
        (TO_REST | S3, IN_STORE | REST, {}),
        (TO_REST | S3 | KEYS, IN_STORE | REST, KEYS | {"AWS_SESSION_TOKEN": ""}),
        (
            TO_REST | {"HEADRACE_CATALOG_WAREHOUSE": ""} | S3 | KEYS | {"AWS_SESSION_TOKEN": "an-hour"},
            IN_STORE | REST | {"iceberg.rest-catalog.warehouse": "s3://lake/tables"},
            KEYS | {"AWS_SESSION_TOKEN": "an-hour"},
        ),
        (
            TO_REST
            | S3
            | {
                "HEADRACE_CATALOG_CREDENTIAL": "id:hidden",
                "HEADRACE_CATALOG_SCOPE": "PRINCIPAL_ROLE:ALL",
                "HEADRACE_CATALOG_OAUTH2_SERVER_URI": "https://login/tokens",
            },
            IN_STORE
            | REST
            | {
                "iceberg.rest-catalog.security": "OAUTH2",
                "iceberg.rest-catalog.oauth2.credential": "${ENV:HEADRACE_CATALOG_CREDENTIAL}",
                "iceberg.rest-catalog.oauth2.scope": "PRINCIPAL_ROLE:ALL",
                "iceberg.rest-catalog.oauth2.server-uri": "https://login/tokens",
            },
            {"HEADRACE_CATALOG_CREDENTIAL": "id:hidden"},
        ),
        (
            TO_REST | S3 | {"HEADRACE_CATALOG_TOKEN": "hidden-token"},
            IN_STORE
            | REST
            | {
                "iceberg.rest-catalog.security": "OAUTH2",
                "iceberg.rest-catalog.oauth2.token": "${ENV:HEADRACE_CATALOG_TOKEN}",
            },
            {"HEADRACE_CATALOG_TOKEN": "hidden-token"},
        ),
        (
            {"HEADRACE_CATALOG_URI": "postgresql://me:p%40ss@db:5433/lake?sslmode=require"} | S3,
            IN_STORE
            | JDBC
            | {
                "iceberg.jdbc-catalog.driver-class": "org.postgresql.Driver",
                "iceberg.jdbc-catalog.connection-url": "jdbc:postgresql://db:5433/lake?sslmode=require",
                "iceberg.jdbc-catalog.connection-user": "me",
                "iceberg.jdbc-catalog.connection-password": "${ENV:HEADRACE_CATALOG_PASSWORD}",
            },
            {"HEADRACE_CATALOG_PASSWORD": "p@ss"},
        ),
        (
            {"HEADRACE_CATALOG_URI": "sqlite:////shared/catalog.db", "HEADRACE_WAREHOUSE": "file:///shared/tables"},
            COMMON
            | JDBC
            | {
                "iceberg.jdbc-catalog.driver-class": "org.sqlite.JDBC",
                "iceberg.jdbc-catalog.connection-url": "jdbc:sqlite:/shared/catalog.db?open_mode=1&busy_timeout=30000",
                "iceberg.jdbc-catalog.default-warehouse-dir": "file:///shared/tables",
                "fs.native-local.enabled": "true",
                "local.location": "/",
            },
            {},
        ),
        (
            {"HEADRACE_CATALOG_TYPE": "hive", "HEADRACE_CATALOG_URI": "thrift://metastore:9083"} | S3,
            IN_STORE | {"iceberg.catalog.type": "hive_metastore", "hive.metastore.uri": "thrift://metastore:9083"},
            {},
        ),
        (
            {"HEADRACE_CATALOG_TYPE": "glue", "HEADRACE_WAREHOUSE": "s3://lake", "AWS_REGION": "eu-west-1"},
            COMMON
            | {
                "iceberg.catalog.type": "glue",
                "hive.metastore.glue.region": "eu-west-1",
                "hive.metastore.glue.default-warehouse-dir": "s3://lake",
                "fs.native-s3.enabled": "true",
                "s3.region": "eu-west-1",
                "s3.path-style-access": "false",
            },
            {},
        ),
    ],
    ids=["rest", "keys", "session", "credential", "token", "postgres", "sqlite", "hive", "glue"],
)
def test_trino_catalog_returns_the_properties_of_each_catalog(
    tmp_path: Path, environ: Named, properties: Named, variables: Named
) -> None:
    catalog = trino_catalog(load_settings(flags={}, environ=environ, folder=tmp_path))
    assert catalog.properties == properties
    assert catalog.environ == variables
    shown = f"{catalog} {catalog.properties}"
    assert not [value for value in variables.values() if value and value in shown]


def test_trino_catalog_refuses_an_unsupported_database(tmp_path: Path) -> None:
    settings = load_settings(flags={}, environ={"HEADRACE_CATALOG_URI": "mysql://me:hidden@db/lake"}, folder=tmp_path)
    with pytest.raises(SettingsError, match="Trino does not support catalogs in mysql:…") as error:
        trino_catalog(settings)
    assert "Postgres (postgresql://host/database)" in str(error.value)
    assert "hidden" not in str(error.value)
