"""Topics of a Kafka: made where they are missing, and how far they reach."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from concurrent.futures import TimeoutError as NoAnswerError

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, ListOffsetsResultInfo, NewTopic, OffsetSpec

from headrace.errors import UnavailableError
from headrace.services.kafka_client import KafkaServers

_TIMEOUT_SECONDS = 15.0
_EARLIEST = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
_LATEST = OffsetSpec.latest()  # type: ignore[no-untyped-call]


def admin_client(servers: KafkaServers) -> AdminClient:
    return AdminClient(servers.client(socket_timeout_ms=10_000))


def ensure_topics(admin: AdminClient, topics: Mapping[str, int]) -> None:
    """Makes the topics that are missing, with that many partitions. Idempotent by topic: those that exist are left alone."""
    present = list_partitions(admin)
    missing = [NewTopic(topic, num_partitions=count) for topic, count in topics.items() if topic not in present]
    if not missing:
        return
    for topic, future in admin.create_topics(missing, operation_timeout=_TIMEOUT_SECONDS).items():
        try:
            future.result(_TIMEOUT_SECONDS)
        except NoAnswerError as error:
            raise _away(error, f"topic {topic}") from error
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise _away(error, f"topic {topic}") from error
    deadline = time.monotonic() + _TIMEOUT_SECONDS
    while not topics.keys() <= list_partitions(admin).keys() and time.monotonic() < deadline:
        time.sleep(0.05)


def list_partitions(admin: AdminClient) -> dict[str, tuple[int, ...]]:
    """Gives back every topic's partitions."""
    try:
        found = admin.list_topics(timeout=_TIMEOUT_SECONDS).topics
    except KafkaException as error:
        raise _away(error, "the list of topics") from error
    return {name: tuple(sorted(topic.partitions)) for name, topic in found.items()}


def list_bounds(admin: AdminClient, partitions: Iterable[tuple[str, int]]) -> dict[tuple[str, int], tuple[int, int]]:
    """Gives back each partition's oldest offset and the offset after the last committed message."""
    wanted = list(partitions)
    if not wanted:
        return {}
    committed = IsolationLevel.READ_COMMITTED
    low = admin.list_offsets({TopicPartition(*key): _EARLIEST for key in wanted})
    high = admin.list_offsets({TopicPartition(*key): _LATEST for key in wanted}, isolation_level=committed)
    try:
        lows = {(at.topic, at.partition): _offset(future.result(_TIMEOUT_SECONDS)) for at, future in low.items()}
        highs = {(at.topic, at.partition): _offset(future.result(_TIMEOUT_SECONDS)) for at, future in high.items()}
    except (KafkaException, NoAnswerError) as error:
        raise _away(error, "the ends of the topics") from error
    unknown = [key for key in wanted if min(lows[key], highs[key]) < 0]  # what is said of a broker that ends meanwhile
    if unknown:
        raise _away(f"it did not say how far partition {unknown[0][1]} of {unknown[0][0]} reaches", "the ends of the topics")
    return {key: (lows[key], highs[key]) for key in wanted}


def list_offsets_at(
    admin: AdminClient, partitions: Iterable[tuple[str, int]], *, milliseconds: int
) -> dict[tuple[str, int], int | None]:
    """Gives back the first offset of each partition whose message has this timestamp or a later one; None where none has."""
    at = OffsetSpec.for_timestamp(milliseconds)
    found = admin.list_offsets({TopicPartition(*key): at for key in partitions})
    try:
        offsets = {(at.topic, at.partition): _offset(future.result(_TIMEOUT_SECONDS)) for at, future in found.items()}
    except (KafkaException, NoAnswerError) as error:
        raise _away(error, "the offsets at a time") from error
    return {key: None if offset < 0 else offset for key, offset in offsets.items()}


def list_retention(admin: AdminClient, topics: Iterable[str]) -> dict[str, int | None]:
    """Gives back for how many milliseconds each topic keeps its messages; None for ever, or until they are compacted away."""
    wanted = {topic: ConfigResource(ConfigResource.Type.TOPIC, topic) for topic in topics}
    found: dict[str, int | None] = {}
    for resource, future in admin.describe_configs(list(wanted.values())).items():
        try:
            values = future.result(_TIMEOUT_SECONDS)
        except KafkaException:
            continue  # a topic that is not there keeps nothing
        kept = int(values["retention.ms"].value)
        found[resource.name] = kept if kept >= 0 and "delete" in values["cleanup.policy"].value else None
    return found


def _offset(info: ListOffsetsResultInfo) -> int:
    return int(info.offset)


def _away(reason: KafkaException | NoAnswerError | str, where: str) -> UnavailableError:
    says = reason.args[0].str() if isinstance(reason, KafkaException) and reason.args else str(reason)
    return UnavailableError(
        f"Kafka does not answer: {says or 'it took too long'}",
        where=where,
        next_step="Check that it runs: headrace doctor says which one is asked.",
    )
