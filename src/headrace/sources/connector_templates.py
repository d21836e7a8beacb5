"""A pipeline's connectors as Connect takes them: templates, filled in with what Headrace knows and the environment says."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from headrace.http.client import split_login
from headrace.servers.connect_worker import APICURIO_CONVERTER
from headrace.servers.registry import COMPATIBLE, NATIVE
from headrace.servers.source_database import SourceDatabase
from headrace.spec.loading.capture import list_templates, read_template
from headrace.spec.loading.variables import fill_variables
from headrace.spec.model.pipeline import Capture, CaptureFormat, Pipeline
from headrace.spec.problems import Place

JSON_CONVERTER = "org.apache.kafka.connect.json.JsonConverter"
CONFLUENT_CONVERTER = "io.confluent.connect.avro.AvroConverter"
_COMPATIBLE = re.compile(re.escape(COMPATIBLE.rpartition("/")[0]) + r"/v\d+/?")


@dataclass(frozen=True)
class Connector:
    """A connector's name and config; `slot`, `publication` and the tables of the latter are what it needs of its database."""

    name: str
    config: Mapping[str, str] = field(repr=False)

    @property
    def slot(self) -> str:
        return self.config.get("slot.name", "debezium")

    @property
    def publication(self) -> str | None:
        """The publication that Headrace makes for it, or None where the connector makes its own."""
        ours = self.config.get("publication.autocreate.mode") == "disabled"
        return self.config.get("publication.name", "dbz_publication") if ours else None

    @property
    def included(self) -> tuple[str, ...]:
        """The patterns of the tables that it captures."""
        return tuple(each.strip() for each in self.config.get("table.include.list", ".*").split(",") if each.strip())

    @property
    def other_tables(self) -> tuple[str, ...]:
        """Tables that it must hear of besides: that of its signals and that of its heartbeats."""
        import sqlglot
        from sqlglot import exp

        query = self.config.get("heartbeat.action.query")
        written = list(sqlglot.parse_one(query, dialect="postgres").find_all(exp.Table)) if query else []
        beats = [f"{table.db or 'public'}.{table.name}" for table in written]
        signals = self.config.get("signal.data.collection")
        return (*beats, *([".".join(signals.split(".")[-2:])] if signals else []))


@dataclass(frozen=True)
class Surroundings:
    """What the connectors of a pipeline find: the database, how the password is said to Connect, and the registry, if any.

    `registry_password` is how the password of the registry's address is said to Connect; empty: as it is.
    """

    database: SourceDatabase
    password: str = field(repr=False)
    registry_url: str | None = field(repr=False)
    environ: Mapping[str, str] = field(repr=False)
    registry_password: str = field(default="", repr=False)


def fill_templates(pipeline: Pipeline, capture: Capture, around: Surroundings) -> tuple[Connector, ...]:
    """Return the connectors of a pipeline, by the names of their templates."""
    known = {
        "PIPELINE": pipeline.name,
        "TABLES": ",".join(map(re.escape, captured_tables(pipeline))),
        "DATABASE_HOST": around.database.parts.get("host") or "localhost",
        "DATABASE_PORT": around.database.parts.get("port", "5432"),
        "DATABASE_NAME": around.database.parts.get("dbname", ""),
        "DATABASE_USER": around.database.user,
        "DATABASE_PASSWORD": around.password,
    }
    values = {**around.environ, **known}
    defaults = converters(capture.format, registry_url=around.registry_url, registry_password=around.registry_password)
    if "sslmode" in around.database.parts:
        defaults["database.sslmode"] = around.database.parts["sslmode"]
    connectors = []
    for path in list_templates(capture.connectors):
        template = read_template(path, place=Place(path.name, pipeline.name), environ=around.environ)
        config = template["config"]
        assert isinstance(config, dict)
        filled = {str(key): fill_variables(_as_text(value), values) for key, value in config.items()}
        connectors.append(Connector(fill_variables(str(template["name"]), values), {**defaults, **filled}))
    return tuple(connectors)


def captured_tables(pipeline: Pipeline) -> tuple[str, ...]:
    """Return the tables whose changes the pipeline's streams take: of `shop.public.orders`, public.orders."""
    parts = [stream.topic.split(".") for stream in pipeline.streams]
    return tuple(".".join(each[-2:]) for each in parts if len(each) >= 3)


def converters(message_format: CaptureFormat, *, registry_url: str | None, registry_password: str = "") -> dict[str, str]:
    """Return the settings that make a connector's messages JSON with their schemas, or Avro with them in a registry.

    A login in the registry's address becomes settings of its own: the clients in Connect ignore it in an address.
    """
    registry_url, user, password = split_login(registry_url or "")
    password = registry_password or password
    if message_format == "json" or not registry_url:
        settings = {"": JSON_CONVERTER, ".schemas.enable": "true"}
    elif _COMPATIBLE.search(registry_url):
        settings = {
            "": APICURIO_CONVERTER,
            ".apicurio.registry.url": _COMPATIBLE.sub(NATIVE, registry_url),
            ".apicurio.registry.auto-register": "true",
            ".apicurio.registry.find-latest": "false",
            ".apicurio.registry.as-confluent": "true",
            ".apicurio.registry.headers.enabled": "false",
            ".apicurio.registry.use-id": "contentId",
        }
        if user:
            settings |= {".apicurio.auth.username": user, ".apicurio.auth.password": password}
    else:
        settings = {"": CONFLUENT_CONVERTER, ".schema.registry.url": registry_url}
        if user:
            login = {".basic.auth.credentials.source": "USER_INFO", ".basic.auth.user.info": f"{user}:{password}"}
            settings |= login
    return {f"{side}.converter{name}": value for side in ("key", "value") for name, value in settings.items()}


def _as_text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
