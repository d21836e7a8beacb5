"""The schemas of captured tables as they are now, and the files that a pipeline has of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass

from headrace.errors import HeadraceError, SpecError
from headrace.kafka.client import KafkaServers
from headrace.kafka.messages import read_last
from headrace.kafka.schemas import Registry
from headrace.kafka.topics import admin_client, list_bounds, list_partitions
from headrace.servers.kafka import find_servers
from headrace.servers.registry import find_registry
from headrace.settings import Settings
from headrace.spec.loading.stage_config import CapturedPipeline, CapturedStream, as_avro, stage_text

_MESSAGES = 20  # tombstones say nothing of their schema
_FRAMED, _PREFIX = 0, 5


@dataclass(frozen=True)
class LiveSchema:
    """The Avro schema of a stream's envelopes, and where it was found."""

    stream: CapturedStream
    text: str
    found: str


def live_schemas(settings: Settings, captured: CapturedPipeline, *, report: Callable[[str], None]) -> tuple[LiveSchema, ...]:
    """Return the schema of every stream: the registry's newest, else that of the topic's newest message, else its file's.

    Nothing is started. A registry or a Kafka that does not answer is reported, and the next place is looked at.
    """
    address, servers = find_registry(settings), find_servers(settings)
    registry = Registry(address) if address else None
    return tuple(_find(each, registry, servers, report) for each in captured.streams)


def write_schemas(schemas: tuple[LiveSchema, ...]) -> None:
    """Write each schema to the file that its stream names. Idempotent."""
    for each in schemas:
        each.stream.schema.parent.mkdir(parents=True, exist_ok=True)
        each.stream.schema.write_text(json.dumps(json.loads(each.text), indent=2) + "\n", encoding="utf-8")


def config_text(schemas: tuple[LiveSchema, ...]) -> str:
    """Return a stage_tables.yaml of these schemas."""
    return stage_text((each.stream, each.text) for each in schemas)


def _find(
    stream: CapturedStream, registry: Registry | None, servers: KafkaServers | None, report: Callable[[str], None]
) -> LiveSchema:
    try:
        versions = registry.versions(f"{stream.topic}-value") if registry else ()
        if versions:
            return LiveSchema(stream, versions[-1].schema, f"the registry, version {versions[-1].version}")
        text = _of_newest_message(stream.topic, servers, registry) if servers else None
        if text:
            return LiveSchema(stream, text, "the topic's newest message")
    except HeadraceError as error:
        report(f"{stream.topic}: {error.what}")
    if stream.schema.is_file():
        return LiveSchema(stream, stream.schema.read_text(encoding="utf-8"), str(stream.schema.name))
    raise SpecError(
        f"nobody knows the schema of {stream.topic}: neither a registry, nor a message, nor {stream.schema.name}",
        where=f"stream {stream.name}",
        next_step="Start the capture first, so that the topic has messages: headrace run, or headrace connectors register.",
    )


def _of_newest_message(topic: str, servers: KafkaServers, registry: Registry | None) -> str | None:
    admin = admin_client(servers)
    partitions = list_partitions(admin).get(topic, ())
    bounds = list_bounds(admin, [(topic, each) for each in partitions])
    for message in reversed(read_last(servers, topic, {each: bounds[topic, each] for each in partitions}, count=_MESSAGES)):
        value = message.value or b""
        if registry and len(value) > _PREFIX and value[0] == _FRAMED:
            return registry.schema(int.from_bytes(value[1:_PREFIX], "big"))
        if value.startswith(b"{"):
            said = json.loads(value)
            if isinstance(said, dict) and isinstance(said.get("schema"), dict):
                return as_avro(said["schema"])
    return None
