"""The bounds and identities of the topics that a lander reads."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence

from confluent_kafka.admin import AdminClient

from headrace.errors import UnavailableError
from headrace.kafka.topics import TopicIdentity, TopicState, describe_topics, find_bounds, list_topic_ids
from headrace.landing.plan import Bounds

_METADATA_EVERY_SECONDS = 5.0
"""How often partitions and topic ids are read again; bounds are read for every plan."""


class WatchedTopics:
    """Read the bounds and metadata of topics of one Kafka cluster."""

    def __init__(self, admin: AdminClient, topics: Iterable[str]) -> None:
        self._admin = admin
        self._names = tuple(dict.fromkeys(topics))
        self._states: Mapping[str, TopicState] = {}
        self._read_at = float("-inf")

    def bounds(self, topics: Sequence[str]) -> tuple[dict[str, dict[int, Bounds]], dict[str, UnavailableError]]:
        """Return the bounds of these topics' partitions by topic, and the errors of the topics whose bounds can't be read.

        A topic that does not exist has no partitions. Raise an UnavailableError if the bounds of no topic can be read.
        """
        if time.monotonic() - self._read_at > _METADATA_EVERY_SECONDS:
            self._states = describe_topics(self._admin, self._names)
            self._read_at = time.monotonic()
        keys = [(topic, part) for topic in topics if topic in self._states for part in self._states[topic].partitions]
        known, errors = find_bounds(self._admin, keys)
        if errors and errors.keys() == {topic for topic, _ in keys}:
            raise next(iter(errors.values()))
        bounds: dict[str, dict[int, Bounds]] = {topic: {} for topic in topics if topic not in errors}
        for (topic, partition), ends in known.items():
            bounds[topic][partition] = Bounds(*ends)
        return bounds, errors

    def identity(self, topic: str) -> TopicIdentity | None:
        """Return the topic's identity as of the last metadata read; None for a topic that didn't exist."""
        state = self._states.get(topic)
        return state.identity if state else None

    def check_unchanged(self, topics: Iterable[str]) -> None:
        """Raise an UnavailableError if a topic was replaced since its metadata was read.

        Topic ids are unique, so messages fetched between two reads of the same id belong to that topic.
        """
        wanted = tuple(topics)
        ids = list_topic_ids(self._admin, wanted)
        for topic in wanted:
            known = self.identity(topic)
            if known is None or ids.get(topic) != known.topic_id:
                self._read_at = float("-inf")
                raise UnavailableError(
                    "the topic was deleted while Headrace read its messages",
                    where=f"topic {topic}",
                    next_step="Nothing was committed. Headrace plans the batch again.",
                )
