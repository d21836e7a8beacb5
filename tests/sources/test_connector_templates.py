"""Fill in connector templates, and choose their converters by the pipeline's format."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.errors import SpecError
from headrace.servers.source_database import SourceDatabase
from headrace.sources.connector_templates import Connector, Surroundings, converters, fill_templates
from headrace.spec.model.pipeline import Capture, Pipeline, Stream, TableName

DSN = "postgresql://owner:theirs@db.example:5433/shop?sslmode=require"
TEMPLATE = """\
{
  "name": "source-${PIPELINE}",
  "config": {
    "database.hostname": "${DATABASE_HOST}", "database.port": "${DATABASE_PORT}", "database.dbname": "${DATABASE_NAME}",
    "database.user": "${DATABASE_USER}", "database.password": "${DATABASE_PASSWORD}",
    "table.include.list": "${TABLES}", "slot.name": "${SLOT:-mine}", "max.batch.size": 10, "errors.log.enable": true,
    "publication.name": "pub", "publication.autocreate.mode": "disabled", "literal": "$${file:a:b}",
    "signal.data.collection": "public.signals",
    "heartbeat.action.query": "INSERT INTO ops.beats (id) VALUES (1) ON CONFLICT (id) DO UPDATE SET id = 1"
  }
}
"""


def stream(topic: str) -> Stream:
    name = topic.rpartition(".")[2]
    return Stream(name, topic, partitions=1, format="json", columns=(), table=TableName("raw", name))


def fill(folder: Path, template: str, *, registry: str | None = None, **environ: str) -> Connector:
    (folder / "one.template.json").write_text(template, encoding="utf-8")
    streams = (stream("shop.public.orders"), stream("shop.sales.items"), stream("clicks"))
    pipeline = Pipeline("shop", "", folder, streams)
    database = SourceDatabase(DSN, "debezium", "secret", is_ours=False)
    capture = Capture("shop", folder, format="avro" if registry else "json")
    (connector,) = fill_templates(pipeline, capture, Surroundings(database, "${file:x:y}", registry, environ))
    return connector


def test_fill_templates_fills_in_all_known_values(tmp_path: Path) -> None:
    connector = fill(tmp_path, TEMPLATE, DATABASE_HOST="elsewhere")
    assert connector.name == "source-shop"
    wanted = {
        "database.hostname": "db.example",
        "database.port": "5433",
        "database.dbname": "shop",
        "database.user": "debezium",
        "database.password": "${file:x:y}",
        "database.sslmode": "require",
        "table.include.list": r"public\.orders,sales\.items",
        "slot.name": "mine",
        "max.batch.size": "10",
        "errors.log.enable": "true",
        "literal": "${file:a:b}",
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "value.converter.schemas.enable": "true",
    }
    assert {key: connector.config[key] for key in wanted} == wanted
    assert (connector.slot, connector.publication) == ("mine", "pub")
    assert connector.included == (r"public\.orders", r"sales\.items")
    assert connector.other_tables == ("ops.beats", "public.signals")
    assert "theirs" not in str(dict(connector.config))


def test_fill_templates_uses_the_environment(tmp_path: Path) -> None:
    template = '{"name": "a", "config": {"b": "${C}",\n "value.converter": "own"}}'
    assert fill(tmp_path, template, C="d").config["b"] == "d"
    assert fill(tmp_path, template, C="d").config["value.converter"] == "own"
    assert fill(tmp_path, template, C="d").publication is None
    with pytest.raises(SpecError, match=r"one\.template\.json:1: the environment variable C is not set"):
        fill(tmp_path, template)


def test_converters_follow_the_registry() -> None:
    ours = converters("avro", registry_url="http://127.0.0.1:8081/apis/ccompat/v7")
    assert ours["value.converter"] == "io.apicurio.registry.utils.converter.AvroConverter"
    assert ours["key.converter.apicurio.registry.url"] == "http://127.0.0.1:8081/apis/registry/v2"
    theirs = converters("avro", registry_url="http://schemas.example:8081")
    assert theirs["value.converter"] == "io.confluent.connect.avro.AvroConverter"
    assert theirs["value.converter.schema.registry.url"] == "http://schemas.example:8081"
    assert converters("json", registry_url="http://schemas.example:8081")["key.converter"].endswith("JsonConverter")
