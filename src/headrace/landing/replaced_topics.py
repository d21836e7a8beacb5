"""Detect a topic that was replaced: deleted and created again, or read from another Kafka cluster.

Its offsets belong to other messages than the landed ones. Landing and `verify` stop until the user chooses: start over with the
new topic, or continue at the recorded offsets.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from headrace.errors import TopicResetError
from headrace.iceberg.ledgers.landing import Ledger
from headrace.kafka.topics import TopicIdentity
from headrace.landing.plan import WAYS_OUT, Bounds
from headrace.landing.topic_choice import ReplacedTopic


def check_topic(topic: str, ledger: Ledger, identity: TopicIdentity | None) -> None:
    """Raise a TopicResetError if the ledger's offsets belong to another topic. None means that the topic does not exist."""
    if not any(ledger.offsets.values()):
        return  # no offsets to confuse
    if identity is None:
        if ledger.topic_id or ledger.cluster_id:
            raise TopicResetError(
                "the topic no longer exists, but messages were landed from it", where=f"topic {topic}", next_step=WAYS_OUT
            )
        return
    if ledger.topic_id and identity.topic_id:  # topic ids are unique across clusters, so equal ids are proof
        if ledger.topic_id != identity.topic_id:
            raise TopicResetError(
                f"the topic was deleted and created again, or this is another Kafka cluster: its id is {identity.topic_id}, "
                f"but the rows were landed from the topic with id {ledger.topic_id}",
                where=f"topic {topic}",
                next_step=WAYS_OUT,
            )
    elif ledger.cluster_id and identity.cluster_id and ledger.cluster_id != identity.cluster_id:
        raise TopicResetError(
            f"this is another Kafka cluster: its id is {identity.cluster_id}, but the rows were landed from cluster "
            f"{ledger.cluster_id}",
            where=f"topic {topic}",
            next_step=WAYS_OUT,
        )


def is_replaced(topic: str, ledger: Ledger, identity: TopicIdentity | None, bounds: Mapping[int, Bounds]) -> bool:
    """Return whether the topic is not the ledger's: by its identity, or because it ends before a landed offset."""
    try:
        check_topic(topic, ledger, identity)
    except TopicResetError:
        return True
    return any(ledger.offsets.get(partition, 0) > there.high for partition, there in bounds.items())


def adopt(ledger: Ledger, identity: TopicIdentity | None) -> Ledger:
    """Return the ledger with the topic's identity. Keep the recorded id where the broker reports none."""
    if identity is None:
        return ledger
    return replace(
        ledger,
        topic_id=identity.topic_id or ledger.topic_id,
        cluster_id=identity.cluster_id or ledger.cluster_id,
    )


def accept(ledger: Ledger, identity: TopicIdentity, bounds: Mapping[int, Bounds], choice: ReplacedTopic) -> Ledger:
    """Return the ledger after the user's choice. The caller commits it as a checkpoint without rows."""
    accepted = replace(ledger, topic_id=identity.topic_id, cluster_id=identity.cluster_id, quarantine_files=())
    if choice is ReplacedTopic.CONTINUE:
        return accepted
    return replace(
        accepted,
        offsets=MappingProxyType({partition: there.low for partition, there in bounds.items()}),
        topic_starts=(*ledger.topic_starts, ledger.checkpoint_id + 1),
    )
