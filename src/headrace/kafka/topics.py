"""Topics of a Kafka: made where they are missing, and how far they reach."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NoAnswerError
from dataclasses import dataclass

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
    """What tells a topic from another one of the same name. Brokers that don't report an id leave it empty."""

    topic_id: str = ""
    cluster_id: str = ""


@dataclass(frozen=True)
class TopicState:
    """A topic as the metadata of its Kafka describes it."""

    partitions: tuple[int, ...]
    identity: TopicIdentity


def admin_client(servers: KafkaServers) -> AdminClient:
    return AdminClient(servers.client(socket_timeout_ms=10_000))


def ensure_topics(admin: AdminClient, topics: Mapping[str, int], *, grow: bool = False) -> None:
    """Make the topics that are missing, with that many partitions. Idempotent by topic.

    With `grow`, those that exist get the partitions that they lack; otherwise they are left alone. None ever loses any.
    """
    present = list_partitions(admin)
    missing = [NewTopic(topic, num_partitions=count) for topic, count in topics.items() if topic not in present]
    if missing:
        _settle(admin.create_topics(missing, operation_timeout=_TIMEOUT_SECONDS), KafkaError.TOPIC_ALREADY_EXISTS)
        present = _wait_for(admin, dict.fromkeys(topics, 1))
    few = {topic: count for topic, count in topics.items() if len(present.get(topic, ())) < count}
    if grow and few:
        more = [NewPartitions(topic, count) for topic, count in few.items()]
        _settle(admin.create_partitions(more, operation_timeout=_TIMEOUT_SECONDS), KafkaError.INVALID_PARTITIONS)
        _wait_for(admin, few)


def _settle(changes: Mapping[str, Future[None]], done_already: int) -> None:
    """Wait for changes of topics; an error that says that another made the same change is none."""
    for topic, future in changes.items():
        try:
            future.result(_TIMEOUT_SECONDS)
        except NoAnswerError as error:
            raise _away(error, f"topic {topic}") from error
        except KafkaException as error:
            if error.args[0].code() != done_already:
                raise _away(error, f"topic {topic}") from error


def _wait_for(admin: AdminClient, topics: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
    """Return the topics once the brokers tell of these, with at least so many partitions, or after a while."""
    deadline = time.monotonic() + _TIMEOUT_SECONDS
    while True:
        present = list_partitions(admin)
        if all(len(present.get(topic, ())) >= count for topic, count in topics.items()) or time.monotonic() > deadline:
            return present
        time.sleep(0.05)


def list_partitions(admin: AdminClient) -> dict[str, tuple[int, ...]]:
    """Return every topic's partitions."""
    try:
        found = admin.list_topics(timeout=_TIMEOUT_SECONDS).topics
    except KafkaException as error:
        raise _away(error, "the list of topics") from error
    return {name: tuple(sorted(topic.partitions)) for name, topic in found.items()}


def describe_topics(admin: AdminClient, topics: Iterable[str]) -> dict[str, TopicState]:
    """Return the partitions and the identity of each topic that exists. Costs two metadata requests."""
    try:
        known = admin.list_topics(timeout=_TIMEOUT_SECONDS)
    except KafkaException as error:
        raise _away(error, "the list of topics") from error
    ids = list_topic_ids(admin, [topic for topic in dict.fromkeys(topics) if topic in known.topics])
    return {
        topic: TopicState(tuple(sorted(known.topics[topic].partitions)), TopicIdentity(topic_id, known.cluster_id or ""))
        for topic, topic_id in ids.items()
    }


def list_topic_ids(admin: AdminClient, topics: Sequence[str]) -> dict[str, str]:
    """Return the id of each topic that exists, empty where the broker doesn't report it. Costs one metadata request."""
    if not topics:
        return {}
    ids: dict[str, str] = {}
    for topic, future in admin.describe_topics(TopicCollection(list(topics))).items():
        try:
            topic_id = future.result(_TIMEOUT_SECONDS).topic_id
        except NoAnswerError as error:
            raise _away(error, f"topic {topic}") from error
        except KafkaException as error:
            code = error.args[0].code()
            if code in _NO_IDS:
                ids[topic] = ""
            elif code not in _NO_TOPIC:
                raise _away(error, f"topic {topic}") from error
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
    """Return each partition's oldest offset and the offset after the last committed message, and the errors of the topics for
    which Kafka does not say them."""
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
            ends = tuple(_offset(each.result(max(0.0, deadline - time.monotonic()))) for each in both)
        except (KafkaException, NoAnswerError) as error:
            errors.setdefault(at.topic, _away(error, "the ends of the topics"))
            continue
        if min(ends) < 0:  # what is said of a broker that ends meanwhile
            says = f"it did not say how far partition {at.partition} of {at.topic} reaches"
            errors.setdefault(at.topic, _away(says, "the ends of the topics"))
        bounds[at.topic, at.partition] = ends[0], ends[1]
    return {key: ends for key, ends in bounds.items() if key[0] not in errors}, errors


def list_offsets_at(
    admin: AdminClient, partitions: Iterable[tuple[str, int]], *, milliseconds: int
) -> dict[tuple[str, int], int | None]:
    """Return the first offset of each partition whose message has this timestamp or a later one; None where none has."""
    at = OffsetSpec.for_timestamp(milliseconds)
    found = admin.list_offsets({TopicPartition(*key): at for key in partitions})
    try:
        offsets = {(at.topic, at.partition): _offset(future.result(_TIMEOUT_SECONDS)) for at, future in found.items()}
    except (KafkaException, NoAnswerError) as error:
        raise _away(error, "the offsets at a time") from error
    return {key: None if offset < 0 else offset for key, offset in offsets.items()}


def list_retention(admin: AdminClient, topics: Iterable[str]) -> dict[str, int | None]:
    """Return for how many milliseconds each topic keeps its messages; None for ever, or until they are compacted away."""
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
