"""Read topics: their offsets, the streams that land them, the lag, and their messages. Starts no server."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from threading import BoundedSemaphore

from confluent_kafka.admin import AdminClient
from pyiceberg.catalog import Catalog

from headrace.app.figures import Bounds, messages_waiting
from headrace.errors import HeadraceError, NotFoundError, UnavailableError
from headrace.iceberg.catalog.tables import find_catalog, load_table
from headrace.iceberg.ledgers.landing import read_ledger
from headrace.kafka.client import KafkaServers
from headrace.kafka.messages import Message, read_from, read_last
from headrace.kafka.schemas import Registry
from headrace.kafka.topics import admin_client, list_bounds, list_configs, list_partitions
from headrace.printable import printable
from headrace.servers.kafka import find_servers
from headrace.servers.registry import find_registry
from headrace.serving.web.message_text import Writing, read_header, read_part
from headrace.serving.web.topics import (
    PartitionStatus,
    ShownMessage,
    ShownSchema,
    ShownSchemas,
    TopicReader,
    TopicStatus,
    Wanted,
)
from headrace.settings import Settings
from headrace.spec.model.pipeline import Pipeline, Stream, configs_of
from headrace.spec.problems import suggest

_INTERNAL = "__"
"""The prefix of Kafka's internal topics."""
_MOST_SUGGESTED = 30
_CONCURRENT_READS = 2
_WAIT_SECONDS = 5.0


def read_all_bounds(admin: AdminClient) -> Bounds:
    """Return the bounds of every partition of every topic."""
    partitions_of = list_partitions(admin)
    return list_bounds(admin, [(topic, partition) for topic, partitions in partitions_of.items() for partition in partitions])


class TopicService:
    """The topics of a Kafka; at most two callers read messages at the same time."""

    def __init__(
        self,
        settings: Settings,
        pipelines: Sequence[Pipeline],
        *,
        bounds: Callable[[], Bounds | None],
        catalog: Callable[[], Catalog],
    ) -> None:
        self._settings = settings
        self._streams = [(pipeline, stream) for pipeline in pipelines for stream in pipeline.streams]
        self._bounds = bounds
        self._catalog = catalog
        self._registries: dict[str, Registry] = {}
        self._seats = BoundedSemaphore(_CONCURRENT_READS)

    def all(self) -> tuple[TopicStatus, ...]:
        bounds = self._known_bounds()
        names = sorted({topic for topic, _ in bounds if not topic.startswith(_INTERNAL)})
        return self._compared([self._status(name, bounds) for name in names])

    def one(self, name: str) -> TopicStatus:
        (status,) = self._compared([self._find(name)])
        return status

    def _find(self, name: str) -> TopicStatus:
        """Return the status of a topic without its differences. Raises a NotFoundError if the topic does not exist."""
        bounds = self._known_bounds()
        if not any(topic == name for topic, _ in bounds):
            known = sorted({topic for topic, _ in bounds if not topic.startswith(_INTERNAL)})
            step = (
                suggest(name, known, plural="Topics") if len(known) <= _MOST_SUGGESTED else "List the topics: headrace topics"
            )
            raise NotFoundError(f'topic not found: "{printable(name)}"', next_step=step)
        return self._status(name, bounds)

    def schemas(self, name: str) -> ShownSchemas:
        self._find(name)
        declared = [_declared(pipeline, stream) for pipeline, stream in self._of(name)]
        registry = self._find_registry()
        try:
            subjects = (f"{name}-key", f"{name}-value") if registry else ()
            versions = [version for subject in subjects for version in registry.versions(subject)] if registry else []
        except HeadraceError as error:
            return ShownSchemas(tuple(declared), problem=error.what)
        registered = [
            ShownSchema(f"registry: {version.subject}, version {version.version}, id {version.id}", _pretty(version.schema))
            for version in versions
        ]
        return ShownSchemas((*declared, *registered))

    def messages(self, name: str, wanted: Wanted) -> tuple[ShownMessage, ...]:
        status = self._find(name)
        bounds = {partition.partition: (partition.low, partition.high) for partition in status.partitions}
        if wanted.partition is not None:
            if wanted.partition not in bounds:
                there = ", ".join(str(partition) for partition in bounds)
                raise NotFoundError(
                    f"partition not found: {wanted.partition}", where=f"topic {name}", next_step=f"Partitions are: {there}."
                )
            bounds = {wanted.partition: bounds[wanted.partition]}
        if wanted.offset is not None:
            _check_offset(wanted, bounds, topic=name)
        servers = find_servers(self._settings)
        if servers is None:
            raise _off()
        if not self._seats.acquire(timeout=_WAIT_SECONDS):
            raise UnavailableError("too many clients are reading messages", next_step="Try again in a few seconds.")
        try:
            fetched = _fetch(servers, name, bounds, wanted)
        finally:
            self._seats.release()
        return tuple(self._shown(message, name) for message in fetched)

    def _known_bounds(self) -> Bounds:
        bounds = self._bounds()
        if bounds is None:
            raise _off()
        return bounds

    def _of(self, topic: str) -> list[tuple[Pipeline, Stream]]:
        return [(pipeline, stream) for pipeline, stream in self._streams if stream.topic == topic]

    def _status(self, name: str, bounds: Bounds) -> TopicStatus:
        own = {partition: at for (topic, partition), at in sorted(bounds.items()) if topic == name}
        lags: dict[str, dict[int, int]] = {}
        readers = []
        for pipeline, stream in self._of(name):
            table = load_table(self._catalog(), stream.table)
            landed = read_ledger(table).offsets if table else {}
            label = f"{pipeline.name}.{stream.name}"
            lags[label] = {partition: messages_waiting(landed.get(partition), at) for partition, at in own.items()}
            readers.append(TopicReader(label, pipeline.name, str(stream.table), stream.format, sum(lags[label].values())))
        partitions = (
            PartitionStatus(partition, low, high, {label: lag[partition] for label, lag in lags.items()})
            for partition, (low, high) in own.items()
        )
        return TopicStatus(name, tuple(partitions), tuple(readers))

    def _compared(self, statuses: Sequence[TopicStatus]) -> tuple[TopicStatus, ...]:
        """Return the statuses with a sentence about each setting whose value is not what a stream declares."""
        wanted = {topic: config for topic, config in configs_of(stream for _, stream in self._streams).items() if config}
        declared = [status.name for status in statuses if status.name in wanted]
        servers = find_servers(self._settings) if declared else None
        present = list_configs(admin_client(servers), declared) if servers else {}
        differences = {
            topic: tuple(
                f"{name} is {config.get(name, 'unknown')}, and pipeline.yml says {value}"
                for name, value in wanted[topic].items()
                if config.get(name) != value
            )
            for topic, config in present.items()
        }
        return tuple(replace(status, differences=differences.get(status.name, ())) for status in statuses)

    def _find_registry(self) -> Registry | None:
        """Return the client of the registry's current address, which caches schemas."""
        url = find_registry(self._settings)
        return self._registries.setdefault(url, Registry(url)) if url else None

    def _shown(self, message: Message, topic: str) -> ShownMessage:
        registry = self._find_registry()
        find_schema = registry.schema if registry else None
        written = next((stream for _, stream in self._of(topic) if stream.format == "avro"), None)
        writing = Writing(written.avro_schema, find_schema, written.framing) if written else Writing(None, find_schema)
        return ShownMessage(
            message.partition,
            message.offset,
            message.at,
            key=read_part(message.key, Writing(find_schema=find_schema)),
            value=read_part(message.value, writing),
            headers=tuple((printable(name), read_header(name, value)) for name, value in message.headers),
        )


def open_topics(settings: Settings, pipelines: Sequence[Pipeline]) -> TopicService:
    """Return the topics for a command; every call asks Kafka."""

    def bounds() -> Bounds | None:
        servers = find_servers(settings)
        return read_all_bounds(admin_client(servers)) if servers else None

    catalog = find_catalog(settings)
    return TopicService(settings, pipelines, bounds=bounds, catalog=lambda: catalog)


def _fetch(servers: KafkaServers, topic: str, bounds: dict[int, tuple[int, int]], wanted: Wanted) -> tuple[Message, ...]:
    if wanted.offset is None or wanted.partition is None:
        return read_last(servers, topic, bounds, count=wanted.count)
    end = bounds[wanted.partition][1]
    return read_from(servers, topic, partition=wanted.partition, offset=wanted.offset, end=end, count=wanted.count)


def _check_offset(wanted: Wanted, bounds: dict[int, tuple[int, int]], *, topic: str) -> None:
    """Raise a NotFoundError unless the offset is in the partition."""
    if wanted.partition is None:
        there = ", ".join(str(partition) for partition in bounds)
        raise NotFoundError(
            "an offset requires a partition",
            where=f"topic {topic}",
            next_step=f"Name a partition too: {there}.",
        )
    low, high = bounds[wanted.partition]
    if wanted.offset is not None and not low <= wanted.offset < high:
        there = f"It has {low} to {high - 1}." if high > low else "It holds no message."
        raise NotFoundError(
            f"offset not found: {wanted.offset}", where=f"topic {topic}, partition {wanted.partition}", next_step=there
        )


def _declared(pipeline: Pipeline, stream: Stream) -> ShownSchema:
    """Return the schema that a stream declares."""
    origin = f"{pipeline.name}.{stream.name}, {stream.format}"
    if stream.avro_schema is not None:
        return ShownSchema(origin, _pretty(stream.avro_schema))
    columns = (f"{column.name} {column.type}{' NOT NULL' if column.required else ''}" for column in stream.columns)
    return ShownSchema(origin, ",\n".join(columns))


def _pretty(text: str) -> str:
    try:
        return printable(json.dumps(json.loads(text), indent=2, ensure_ascii=False))
    except (ValueError, RecursionError):
        return printable(text)


def _off() -> UnavailableError:
    return UnavailableError(
        "Kafka is not running or does not answer",
        next_step="Run: headrace up   or set KAFKA_BOOTSTRAP_SERVERS to your own.",
    )
