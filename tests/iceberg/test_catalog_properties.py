"""The properties of a catalog for PyIceberg and Spark, from the same settings. The names are from their documentation:
py.iceberg.apache.org/configuration and iceberg.apache.org/docs (Spark configuration, JDBC, AWS, REST authentication).
"""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.iceberg.catalog.properties import catalog_conf, catalog_properties, secret_names
from headrace.settings import load_settings

Environ = dict[str, str]
S3 = {
    "HEADRACE_WAREHOUSE": "s3://lake/tables",
    "HEADRACE_S3_ENDPOINT": "http://store:9000",
    "AWS_ACCESS_KEY_ID": "key",
    "AWS_SECRET_ACCESS_KEY": "secret",
}
PYTHON_S3 = {
    "warehouse": "s3://lake/tables",
    "s3.endpoint": "http://store:9000",
    "s3.region": "us-east-1",
    "s3.force-virtual-addressing": "false",
    "s3.access-key-id": "key",
    "s3.secret-access-key": "secret",
}
SPARK_S3 = {
    "warehouse": "s3://lake/tables",
    "io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
    "client.region": "us-east-1",
    "s3.endpoint": "http://store:9000",
    "s3.path-style-access": "true",
    "s3.access-key-id": "key",
    "s3.secret-access-key": "secret",
}
REST = {
    "HEADRACE_CATALOG_TYPE": "rest",
    "HEADRACE_CATALOG_URI": "https://catalog/api",
    "HEADRACE_CATALOG_WAREHOUSE": "main",
    "HEADRACE_CATALOG_SCOPE": "PRINCIPAL_ROLE:ALL",
    "HEADRACE_CATALOG_OAUTH2_SERVER_URI": "https://login/tokens",
    "HEADRACE_CATALOG_CREDENTIAL": "id:secret",
}
OAUTH = {
    "uri": "https://catalog/api",
    "warehouse": "main",
    "scope": "PRINCIPAL_ROLE:ALL",
    "oauth2-server-uri": "https://login/tokens",
    "credential": "id:secret",
    "rest.client.connection-timeout-ms": "5000",
    "rest.client.socket-timeout-ms": "20000",
}
POSTGRES = {"HEADRACE_CATALOG_URI": "postgresql://reader@db:5433/lake?sslmode=require"}
DATABASE = "db:5433/lake?sslmode=require"
JDBC = {"type": "jdbc", "uri": f"jdbc:postgresql://{DATABASE}", "jdbc.schema-version": "V1"}


@pytest.mark.parametrize(
    ("environ", "python", "spark"),
    [
        (
            REST | S3,
            PYTHON_S3 | OAUTH | {"header.X-Iceberg-Access-Delegation": ""},
            SPARK_S3 | OAUTH | {"type": "rest", "token-exchange-enabled": "false"},
        ),
        (
            POSTGRES | {"HEADRACE_CATALOG_CREDENTIAL": "owner:p@ss/word"} | S3,
            PYTHON_S3 | {"uri": f"postgresql+psycopg://owner:p%40ss%2Fword@{DATABASE}"},
            SPARK_S3 | JDBC | {"jdbc.user": "owner", "jdbc.password": "p@ss/word"},
        ),
        (
            {"HEADRACE_CATALOG_URI": f"postgresql://me:p%40ss@{DATABASE}"} | S3,
            PYTHON_S3 | {"uri": f"postgresql+psycopg://me:p%40ss@{DATABASE}"},
            SPARK_S3 | JDBC | {"jdbc.user": "me", "jdbc.password": "p@ss"},
        ),
        (
            {"HEADRACE_CATALOG_URI": f"postgresql://{DATABASE}&user=me&password=p%40ss"} | S3,
            PYTHON_S3 | {"uri": f"postgresql+psycopg://me:p%40ss@{DATABASE}"},
            SPARK_S3 | JDBC | {"jdbc.user": "me", "jdbc.password": "p@ss"},
        ),
        (
            {"HEADRACE_CATALOG_TYPE": "hive", "HEADRACE_CATALOG_URI": "thrift://metastore:9083"} | S3,
            PYTHON_S3 | {"uri": "thrift://metastore:9083"},
            SPARK_S3 | {"type": "hive", "uri": "thrift://metastore:9083"},
        ),
        (
            {"HEADRACE_CATALOG_TYPE": "glue", "HEADRACE_WAREHOUSE": "s3://lake", "AWS_REGION": "eu-west-1"},
            {
                "warehouse": "s3://lake",
                "client.region": "eu-west-1",
                "s3.region": "eu-west-1",
                "s3.force-virtual-addressing": "true",
            },
            {
                "type": "glue",
                "warehouse": "s3://lake",
                "client.region": "eu-west-1",
                "io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
                "s3.path-style-access": "false",
            },
        ),
    ],
    ids=["rest", "postgres", "postgres-url", "postgres-query", "hive", "glue"],
)
def test_catalog_properties_match_spark_conf(tmp_path: Path, environ: Environ, python: Environ, spark: Environ) -> None:
    settings = load_settings(flags={}, environ=environ, folder=tmp_path)
    assert catalog_properties(settings) == python
    prefix = "spark.sql.catalog.headrace"
    named = {f"{prefix}.{name}": value for name, value in (spark | {"cache-enabled": "false"}).items()}
    assert catalog_conf(settings) == named | {prefix: "org.apache.iceberg.spark.SparkCatalog"}
    hidden = {name for name, value in named.items() if value in ("key", "secret", "id:secret", "p@ss", "p@ss/word")}
    assert secret_names(settings) == dict.fromkeys(hidden, "")


def test_catalog_properties_include_the_profile(tmp_path: Path) -> None:
    (tmp_path / "headrace.toml").write_text('[p]\ncatalog.type = "glue"\ncatalog.properties."glue.id" = "123"\n')
    settings = load_settings(flags={"profile": "p"}, environ={}, folder=tmp_path)
    assert catalog_properties(settings)["glue.id"] == "123"
    assert catalog_conf(settings)["spark.sql.catalog.headrace.glue.id"] == "123"
