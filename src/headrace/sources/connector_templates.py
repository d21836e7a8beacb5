"""Fill in a pipeline's connector templates with Headrace's values and environment variables."""

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
    """A connector's name and config, with its replication slot, its publication and the publication's tables."""

    name: str
    config: Mapping[str, str] = field(repr=False)

    @property
    def slot(self) -> str:
        return self.config.get("slot.name", "debezium")

    @property
    def publication(self) -> str | None:
        """The publication that Headrace creates for it, or None if the connector creates its own."""
        is_own = self.config.get("publication.autocreate.mode") == "disabled"
        return self.config.get("publication.name", "dbz_publication") if is_own else None

    @property
    def included(self) -> tuple[str, ...]:
        """The patterns of the captured tables."""
        return tuple(part.strip() for part in self.config.get("table.include.list", ".*").split(",") if part.strip())

    @property
    def other_tables(self) -> tuple[str, ...]:
        """Other tables of the publication: the signal table and the heartbeat tables."""
        import sqlglot
        from sqlglot import exp

        query = self.config.get("heartbeat.action.query")
        written = list(sqlglot.parse_one(query, dialect="postgres").find_all(exp.Table)) if query else []
        beats = [f"{table.db or 'public'}.{table.name}" for table in written]
        signals = self.config.get("signal.data.collection")
        return (*beats, *([".".join(signals.split(".")[-2:])] if signals else []))


@dataclass(frozen=True)
class Surroundings:
    """The environment of a pipeline's connectors: the database, its password as written to Connect, and the registry, if any.

    `registry_password` is the registry's password as written to Connect; if empty, the one in the registry's URL.
    """

    database: SourceDatabase
    password: str = field(repr=False)
    registry_url: str | None = field(repr=False)
    environ: Mapping[str, str] = field(repr=False)
    registry_password: str = field(default="", repr=False)


def fill_templates(pipeline: Pipeline, capture: Capture, around: Surroundings) -> tuple[Connector, ...]:
    """Return the connectors of a pipeline, in the order of their template files."""
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
    """Return the captured tables of the pipeline's topics: public.orders for `shop.public.orders`."""
    parts = [stream.topic.split(".") for stream in pipeline.streams]
    return tuple(".".join(names[-2:]) for names in parts if len(names) >= 3)


def converters(message_format: CaptureFormat, *, registry_url: str | None, registry_password: str = "") -> dict[str, str]:
    """Return the converter settings for JSON with inline schemas, or for Avro with schemas in a registry.

    A login in the registry's URL becomes separate settings, because Connect's clients ignore it in the URL.
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
