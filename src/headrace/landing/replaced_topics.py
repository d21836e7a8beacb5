"""A topic that was replaced: deleted and created again, or read from another Kafka.

Its offsets name other messages than those that were landed. Landing and `verify` stop, and the user chooses: start over with
the new topic, or continue at the recorded offsets.
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
    """Raise a TopicResetError if the ledger's offsets belong to another topic. None stands for a topic that doesn't exist."""
    if not any(ledger.offsets.values()):
        return  # nothing was landed that could be mixed up
    if identity is None:
        if ledger.topic_id or ledger.cluster_id:
            raise TopicResetError(
                "the topic does not exist, and messages were landed from it", where=f"topic {topic}", next_step=WAYS_OUT
            )
        return
    if ledger.topic_id and identity.topic_id:  # an id is never used twice: equal ones are proof, on whatever cluster
        if ledger.topic_id != identity.topic_id:
            raise TopicResetError(
                f"the topic was deleted and created again, or this is another Kafka: its id is {identity.topic_id}, and the "
                f"rows were landed from the topic with id {ledger.topic_id}",
                where=f"topic {topic}",
                next_step=WAYS_OUT,
            )
    elif ledger.cluster_id and identity.cluster_id and ledger.cluster_id != identity.cluster_id:
        raise TopicResetError(
            f"this is another Kafka: its cluster id is {identity.cluster_id}, and the rows were landed from cluster "
            f"{ledger.cluster_id}",
            where=f"topic {topic}",
            next_step=WAYS_OUT,
        )


def is_replaced(topic: str, ledger: Ledger, identity: TopicIdentity | None, bounds: Mapping[int, Bounds]) -> bool:
    """Return whether the topic is another one than the ledger's, also where only its length tells."""
    try:
        check_topic(topic, ledger, identity)
    except TopicResetError:
        return True
    return any(ledger.offsets.get(partition, 0) > there.high for partition, there in bounds.items())


def adopt(ledger: Ledger, identity: TopicIdentity | None) -> Ledger:
    """Return the ledger with the topic's identity; one that the broker doesn't report is kept as it was recorded."""
    if identity is None:
        return ledger
    return replace(
        ledger,
        topic_id=identity.topic_id or ledger.topic_id,
        cluster_id=identity.cluster_id or ledger.cluster_id,
    )


def accept(ledger: Ledger, identity: TopicIdentity, bounds: Mapping[int, Bounds], choice: ReplacedTopic) -> Ledger:
    """Return the ledger after the user's choice, to be committed as a checkpoint without rows."""
    accepted = replace(ledger, topic_id=identity.topic_id, cluster_id=identity.cluster_id, quarantine_files=())
    if choice is ReplacedTopic.CONTINUE:
        return accepted
    return replace(
        accepted,
        offsets=MappingProxyType({partition: there.low for partition, there in bounds.items()}),
        topic_starts=(*ledger.topic_starts, ledger.checkpoint_id + 1),
    )
