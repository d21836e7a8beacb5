"""Settings: precedence of values, invalid values, and secrets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from types import MappingProxyType
from typing import get_args, get_type_hints

import pytest

from headrace.errors import SettingsError
from headrace.settings import (
    SECRETS,
    SETTING_SPECS,
    Settings,
    load_settings,
    passwords_in,
    without_passwords,
)

PRODUCTION = """
[production]
warehouse = "s3://lake/tables"
[production.catalog]
type = "rest"
uri = "https://catalog.example.com/api"
warehouse = "main"
scope = "PRINCIPAL_ROLE:ALL"
properties."rest.sigv4-enabled" = false
[production.s3]
endpoint = "http://store:9000"
[production.kafka]
bootstrap_servers = "kafka-1:9093,kafka-2:9093"
sasl_mechanism = "scram-sha-512"
ca_location = "ca.pem"
[production.spark]
master = "k8s://https://cluster:6443"
executor_cores = 2
conf."spark.kubernetes.namespace" = "streams"
"""
KAFKA = {"HEADRACE_KAFKA_USERNAME": "streams", "HEADRACE_KAFKA_PASSWORD": "kafka-secret"}


def load(folder: Path, text: str = "", profile: str = "", **environ: str) -> Settings:
    (folder / "headrace.toml").write_text(text, encoding="utf-8")
    return load_settings(flags={"profile": profile}, environ=environ, folder=folder)


def test_profile_sets_all_locations(tmp_path: Path) -> None:
    loaded = load(tmp_path, PRODUCTION, "production", **KAFKA)
    assert (loaded.catalog_type, loaded.catalog_uri) == ("rest", "https://catalog.example.com/api")
    assert dict(loaded.catalog_properties) == {"rest.sigv4-enabled": "false"}
    assert dict(loaded.spark_conf) == {"spark.kubernetes.namespace": "streams"}
    assert (loaded.s3_path_style, loaded.spark_executor_cores, loaded.is_on_s3, loaded.is_local) == (True, 2, True, False)
    assert (loaded.kafka_security_protocol, loaded.kafka_sasl_mechanism) == ("SASL_SSL", "SCRAM-SHA-512")
    assert loaded.kafka_ca_location == str(tmp_path / "ca.pem")


def test_default_profile_is_local(tmp_path: Path) -> None:
    loaded = load_settings(flags={}, environ={}, folder=tmp_path)
    assert loaded.catalog_uri == f"sqlite:///{tmp_path}/.headrace/catalog.db"
    assert (loaded.is_local, loaded.is_on_s3, loaded.kafka_security_protocol) == (True, False, "PLAINTEXT")


def test_choices_ignore_case(tmp_path: Path) -> None:
    loaded = load(tmp_path, '[p]\ncatalog.type = "SQL"', "p")
    assert (loaded.catalog_type, loaded.catalog_uri) == ("sql", f"sqlite:///{tmp_path}/.headrace/catalog.db")


def test_stack_profile_needs_no_file(tmp_path: Path) -> None:
    loaded = load_settings(flags={"profile": "stack"}, environ={}, folder=tmp_path)
    assert (loaded.profile, loaded.home) == ("stack", tmp_path / ".headrace" / "stack")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('[p]\ncatalog.uri = "postgresql://me:hidden@host/lake"', "HEADRACE_CATALOG_CREDENTIAL"),
        ('[p]\npostgres.url = "postgresql://me:hidden@host/lake"', "PGPASSWORD"),
        ('[p]\npostgres.url = "postgresql://host/lake?sslpassword=hidden"', "PGPASSWORD"),
        ('[p]\nspark.conf."spark.hadoop.fs.s3a.secret.key" = "hidden"', "AWS_SECRET_ACCESS_KEY"),
        ('[p]\ncatalog.properties.credential = "hidden"', "HEADRACE_CATALOG_CREDENTIAL"),
        ('[p]\ncatalog.type = "nessie"', "sql, rest, hive, glue"),
        ('[p]\ncatalog.type = "rest"', "http(s)://"),
        ('[p]\ncatalog.uri = "http://catalog"', "catalog.type to rest"),
        ('[p]\nwarehouse = "s3a://lake"', "s3://bucket"),
        ('[p]\ns3.path_style = "maybe"', "true or false"),
        ('[p]\nkafka.bootstrap_servers = "a:1"\nkafka.security_protocol = "sasl_ssl"', "HEADRACE_KAFKA_PASSWORD"),
        ('[p]\nkafka.security_protocol = "SSL"', "kafka.bootstrap_servers"),
        ('[p]\nkafka.bootstrap_servers = "a:1"\nkafka.sasl_mechanism = "GSSAPI"', "SCRAM-SHA-512"),
    ],
)
def test_invalid_settings_name_the_next_step(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(SettingsError) as raised:
        load(tmp_path, text, "p")
    assert says in str(raised.value)
    assert "hidden" not in str(raised.value)


def test_settings_repr_contains_no_secrets(tmp_path: Path) -> None:
    environ = {variable: f"hidden-{number}" for number, variable in enumerate(SECRETS.values())}
    loaded = load_settings(
        flags={}, environ={**environ, "HEADRACE_CATALOG_URI": "postgresql://me:hidden-uri@host/lake"}, folder=tmp_path
    )
    assert "hidden" not in repr(loaded)
    assert all(getattr(loaded, name) == environ[variable] for name, variable in SECRETS.items())
    redacted = loaded.without_secrets("no login with hidden-2, hidden-4 or hidden-uri")
    assert redacted == "no login with ***, *** or ***"


def test_without_passwords_redacts_addresses() -> None:
    shown = {
        "postgresql://me:hidden@host/lake": "postgresql://me:***@host/lake",
        "postgresql://me:hid@den@host/lake": "postgresql://me:***@host/lake",
        "postgresql://host/lake?user=me&password=hidden&sslmode=require": (
            "postgresql://host/lake?user=me&password=***&sslmode=require"
        ),
        "https://host/api?token=hidden#there": "https://host/api?token=***#there",
        "host=db password=hidden": "an address that can't be read",
        "postgresql://me:hidden@host:port:port/lake": "postgresql://me:***@host:port:port/lake",
        "postgresql://[host/lake?hidden": "an address that can't be read",
        "http://host:8081/path": "http://host:8081/path",
        "thrift://one:9083,thrift://two:9083": "thrift://one:9083,thrift://two:9083",
        "sqlite:///folder/catalog.db": "sqlite:///folder/catalog.db",
        "store:9000": "store:9000",
    }
    assert {address: without_passwords(address) for address in shown} == shown
    assert passwords_in("postgresql://me:a%2Fb@host/lake") == ("a%2Fb", "a/b")
    assert not any(passwords_in(plain) for plain in ("store:9000", "thrift://one:9083,thrift://two:9083", "sqlite:///a.db"))


def test_settings_values_match_their_types(tmp_path: Path) -> None:
    kinds = {"number": "3", "bool": "true", "web": "https://host", "postgres": "postgresql://host", "database": "sqlite:///x"}
    given = {spec.environ: spec.choices[0] if spec.choices else kinds.get(spec.kind, "file:///x") for spec in SETTING_SPECS}
    types = get_type_hints(Settings)
    for environ in ({}, {**given, **dict.fromkeys(SECRETS.values(), "hidden")}):
        loaded = load_settings(flags={}, environ=environ, folder=tmp_path)
        for field in fields(Settings):
            allowed = (
                MappingProxyType if types[field.name] == Mapping[str, str] else get_args(types[field.name]) or types[field.name]
            )
            value = getattr(loaded, field.name)
            assert isinstance(value, allowed), field.name
            assert isinstance(value, bool) == (types[field.name] is bool), field.name
            assert not environ or value is not None or field.name == "spark_conf_dir", field.name
