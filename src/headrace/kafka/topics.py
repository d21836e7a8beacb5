"""Create topics, and read their partitions, identities, offsets and retention."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NoAnswerError
from dataclasses import dataclass
from types import MappingProxyType

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, ListOffsetsResultInfo, NewPartitions, NewTopic, OffsetSpec

from headrace.errors import UnavailableError
from headrace.kafka.client import KafkaServers

_TIMEOUT_SECONDS = 15.0
_EARLIEST = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
_LATEST = OffsetSpec.latest()  # type: ignore[no-untyped-call]
_NO_IDS = frozenset({KafkaError._UNSUPPORTED_FEATURE, KafkaError.UNSUPPORTED_VERSION})
_NO_TOPIC = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC})


@dataclass(frozen=True)
class TopicIdentity:
    """The identity of a topic beyond its name. An id that the broker does not report is empty."""

    topic_id: str = ""
    cluster_id: str = ""


@dataclass(frozen=True)
class TopicState:
    """The metadata of a topic."""

    partitions: tuple[int, ...]
    identity: TopicIdentity


def admin_client(servers: KafkaServers) -> AdminClient:
    return AdminClient(servers.client(socket_timeout_ms=10_000))


def ensure_topics(
    admin: AdminClient,
    topics: Mapping[str, int],
    *,
    configs: Mapping[str, dict[str, str]] = MappingProxyType({}),
    grow: bool = False,
) -> None:
    """Create the missing topics with these numbers of partitions and settings. Idempotent by topic.

    With `grow`, existing topics get additional partitions up to that number; otherwise they are unchanged. Partitions are never
    removed.
    """
    present = list_partitions(admin)
    missing = [
        NewTopic(topic, num_partitions=count, config=configs.get(topic, {}))
        for topic, count in topics.items()
        if topic not in present
    ]
    if missing:
        _wait_for_changes(admin.create_topics(missing, operation_timeout=_TIMEOUT_SECONDS), KafkaError.TOPIC_ALREADY_EXISTS)
        present = _wait_for(admin, dict.fromkeys(topics, 1))
    few = {topic: count for topic, count in topics.items() if len(present.get(topic, ())) < count}
    if grow and few:
        more = [NewPartitions(topic, count) for topic, count in few.items()]
        _wait_for_changes(admin.create_partitions(more, operation_timeout=_TIMEOUT_SECONDS), KafkaError.INVALID_PARTITIONS)
        _wait_for(admin, few)


def _wait_for_changes(changes: Mapping[str, Future[None]], done_already: int) -> None:
    """Wait for changes of topics. Ignore the error that another client made the same change."""
    for topic, future in changes.items():
        try:
            future.result(_TIMEOUT_SECONDS)
        except NoAnswerError as error:
            raise _unavailable(error, f"topic {topic}") from error
        except KafkaException as error:
            if error.args[0].code() != done_already:
                raise _unavailable(error, f"topic {topic}") from error


def _wait_for(admin: AdminClient, topics: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
    """Return all topics once these exist with at least so many partitions, or after a timeout."""
    deadline = time.monotonic() + _TIMEOUT_SECONDS
    while True:
        present = list_partitions(admin)
        if all(len(present.get(topic, ())) >= count for topic, count in topics.items()) or time.monotonic() > deadline:
            return present
        time.sleep(0.05)


def list_partitions(admin: AdminClient) -> dict[str, tuple[int, ...]]:
    """Return every topic's partitions."""
    try:
        topics = admin.list_topics(timeout=_TIMEOUT_SECONDS).topics
    except KafkaException as error:
        raise _unavailable(error, "the list of topics") from error
    return {name: tuple(sorted(topic.partitions)) for name, topic in topics.items()}


def describe_topics(admin: AdminClient, topics: Iterable[str]) -> dict[str, TopicState]:
    """Return the partitions and the identity of each existing topic. Costs two metadata requests."""
    try:
        known = admin.list_topics(timeout=_TIMEOUT_SECONDS)
    except KafkaException as error:
        raise _unavailable(error, "the list of topics") from error
    ids = list_topic_ids(admin, [topic for topic in dict.fromkeys(topics) if topic in known.topics])
    return {
        topic: TopicState(tuple(sorted(known.topics[topic].partitions)), TopicIdentity(topic_id, known.cluster_id or ""))
        for topic, topic_id in ids.items()
    }


def list_topic_ids(admin: AdminClient, topics: Sequence[str]) -> dict[str, str]:
    """Return the id of each existing topic, empty if the broker does not report it. Costs one metadata request."""
    if not topics:
        return {}
    ids: dict[str, str] = {}
    for topic, future in admin.describe_topics(TopicCollection(list(topics))).items():
        try:
            topic_id = future.result(_TIMEOUT_SECONDS).topic_id
        except NoAnswerError as error:
            raise _unavailable(error, f"topic {topic}") from error
        except KafkaException as error:
            code = error.args[0].code()
            if code in _NO_IDS:
                ids[topic] = ""
            elif code not in _NO_TOPIC:
                raise _unavailable(error, f"topic {topic}") from error
            continue
        known = topic_id and (topic_id.get_most_significant_bits() or topic_id.get_least_significant_bits())
        ids[topic] = str(topic_id) if known else ""
    return ids


Bounds = dict[tuple[str, int], tuple[int, int]]


def list_bounds(admin: AdminClient, partitions: Iterable[tuple[str, int]]) -> Bounds:
    """Return each partition's oldest offset and the offset after the last committed message."""
    bounds, errors = find_bounds(admin, partitions)
    for error in errors.values():
        raise error
    return bounds


def find_bounds(admin: AdminClient, partitions: Iterable[tuple[str, int]]) -> tuple[Bounds, dict[str, UnavailableError]]:
    """Return each partition's oldest offset and the offset after the last committed message, and the errors of topics whose
    offsets can't be read."""
    wanted = list(partitions)
    if not wanted:
        return {}, {}
    committed = IsolationLevel.READ_COMMITTED
    low = admin.list_offsets({TopicPartition(*key): _EARLIEST for key in wanted})
    high = admin.list_offsets({TopicPartition(*key): _LATEST for key in wanted}, isolation_level=committed)
    bounds: Bounds = {}
    errors: dict[str, UnavailableError] = {}
    deadline = time.monotonic() + _TIMEOUT_SECONDS
    highs = {(at.topic, at.partition): future for at, future in high.items()}
    for at, future in low.items():
        both = (future, highs[at.topic, at.partition])
        try:
            ends = tuple(_offset(answer.result(max(0.0, deadline - time.monotonic()))) for answer in both)
        except (KafkaException, NoAnswerError) as error:
            errors.setdefault(at.topic, _unavailable(error, "the ends of the topics"))
            continue
        if min(ends) < 0:  # the broker is shutting down
            reason = f"it returned no offsets for partition {at.partition} of {at.topic}"
            errors.setdefault(at.topic, _unavailable(reason, "the ends of the topics"))
        bounds[at.topic, at.partition] = ends[0], ends[1]
    return {key: ends for key, ends in bounds.items() if key[0] not in errors}, errors


def list_offsets_at(
    admin: AdminClient, partitions: Iterable[tuple[str, int]], *, milliseconds: int
) -> dict[tuple[str, int], int | None]:
    """Return the first offset of each partition with this timestamp or a later one; None if there is none."""
    at = OffsetSpec.for_timestamp(milliseconds)
    answers = admin.list_offsets({TopicPartition(*key): at for key in partitions})
    try:
        offsets = {(at.topic, at.partition): _offset(future.result(_TIMEOUT_SECONDS)) for at, future in answers.items()}
    except (KafkaException, NoAnswerError) as error:
        raise _unavailable(error, "the offsets at a time") from error
    return {key: None if offset < 0 else offset for key, offset in offsets.items()}


def list_configs(admin: AdminClient, topics: Iterable[str]) -> dict[str, dict[str, str]]:
    """Return the settings of each existing topic, by Kafka's names."""
    resources = [ConfigResource(ConfigResource.Type.TOPIC, topic) for topic in topics]
    configs: dict[str, dict[str, str]] = {}
    for resource, future in (admin.describe_configs(resources) if resources else {}).items():
        try:
            values = future.result(_TIMEOUT_SECONDS)
        except KafkaException as error:
            if error.args[0].code() in _NO_TOPIC:
                continue
            raise _unavailable(error, f"topic {resource.name}") from error
        except NoAnswerError as error:
            raise _unavailable(error, f"topic {resource.name}") from error
        configs[resource.name] = {name: entry.value for name, entry in values.items()}
    return configs


def list_retention(admin: AdminClient, topics: Iterable[str]) -> dict[str, int | None]:
    """Return the retention of each existing topic in milliseconds; None for unlimited, or compaction without deletion."""
    retention: dict[str, int | None] = {}
    for topic, config in list_configs(admin, topics).items():
        milliseconds = int(config["retention.ms"])
        retention[topic] = milliseconds if milliseconds >= 0 and "delete" in config["cleanup.policy"] else None
    return retention


def _offset(info: ListOffsetsResultInfo) -> int:
    return int(info.offset)


def _unavailable(reason: KafkaException | NoAnswerError | str, where: str) -> UnavailableError:
    text = reason.args[0].str() if isinstance(reason, KafkaException) and reason.args else str(reason)
    return UnavailableError(
        f"Kafka does not answer: {text or 'it took too long'}",
        where=where,
        next_step="Check its address, and that it runs: headrace doctor",
    )
