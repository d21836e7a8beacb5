"""Read the current schemas of captured tables, and write the schema files of a pipeline."""

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

_MESSAGES = 20  # more than one, because a tombstone has no schema
_FRAMED, _PREFIX = 0, 5


@dataclass(frozen=True)
class LiveSchema:
    """The Avro schema of a stream's envelopes, and where it came from."""

    stream: CapturedStream
    text: str
    origin: str


def live_schemas(settings: Settings, captured: CapturedPipeline, *, report: Callable[[str], None]) -> tuple[LiveSchema, ...]:
    """Return the schema of every stream: the registry's newest, else the newest message's, else the schema file's.

    Starts nothing. If the registry or Kafka does not answer, reports that and reads the schema file.
    """
    address, servers = find_registry(settings), find_servers(settings)
    registry = Registry(address) if address else None
    return tuple(_find(stream, registry, servers, report) for stream in captured.streams)


def write_schemas(schemas: tuple[LiveSchema, ...]) -> None:
    """Write each schema to the file that its stream names. Idempotent."""
    for schema in schemas:
        schema.stream.schema.parent.mkdir(parents=True, exist_ok=True)
        schema.stream.schema.write_text(json.dumps(json.loads(schema.text), indent=2) + "\n", encoding="utf-8")


def config_text(schemas: tuple[LiveSchema, ...]) -> str:
    """Return the text of a stage_tables.yaml for these schemas."""
    return stage_text((schema.stream, schema.text) for schema in schemas)


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
        f"no schema found for topic {stream.topic}: not in a registry, in its messages or in {stream.schema.name}",
        where=f"stream {stream.name}",
        next_step="Start the capture first, so that the topic has messages: headrace run, or headrace connectors register.",
    )


def _of_newest_message(topic: str, servers: KafkaServers, registry: Registry | None) -> str | None:
    admin = admin_client(servers)
    partitions = list_partitions(admin).get(topic, ())
    bounds = list_bounds(admin, [(topic, partition) for partition in partitions])
    ranges = {partition: bounds[topic, partition] for partition in partitions}
    for message in reversed(read_last(servers, topic, ranges, count=_MESSAGES)):
        value = message.value or b""
        if registry and len(value) > _PREFIX and value[0] == _FRAMED:
            return registry.schema(int.from_bytes(value[1:_PREFIX], "big"))
        if value.startswith(b"{"):
            envelope = json.loads(value)
            if isinstance(envelope, dict) and isinstance(envelope.get("schema"), dict):
                return as_avro(envelope["schema"])
    return None
