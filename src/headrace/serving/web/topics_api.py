"""The JSON API of the pages about topics."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query

from headrace.serving.web.message_text import Shown
from headrace.serving.web.problems import REFUSALS
from headrace.serving.web.topics import MOST_MESSAGES, ShownMessage, Topics, TopicStatus, Wanted, cut

_LONGEST = 4_000
_LARGEST_PARTITION = 2**31 - 1
_LARGEST_OFFSET = 2**63 - 1

TopicPath = Annotated[str, Path(description="a topic's name", max_length=249)]
Last = Annotated[int, Query(ge=1, le=MOST_MESSAGES, description="number of messages")]
Partition = Annotated[int | None, Query(ge=0, le=_LARGEST_PARTITION, description="only of this partition")]
Offset = Annotated[int | None, Query(ge=0, le=_LARGEST_OFFSET, description="of the partition, from this offset on")]


def make_topics_api(topics: Topics) -> APIRouter:
    """Return the routes below /api/topics."""
    router = APIRouter(prefix="/api/topics", responses=REFUSALS)

    @router.get("", summary="Every topic: partitions, messages, the streams that land it and their lag")
    def every() -> dict[str, object]:
        return {"topics": [_topic(topic) for topic in topics.all()]}

    @router.get("/{name}", summary="One topic, partition by partition")
    def one(name: TopicPath) -> dict[str, object]:
        topic = topics.one(name)
        partitions = [
            {"partition": partition.partition, "low": partition.low, "high": partition.high, "lags": dict(partition.lags)}
            for partition in topic.partitions
        ]
        return {**_topic(topic), "offsets": partitions}

    @router.get("/{name}/schemas", summary="The schemas of a topic's messages")
    def schemas(name: TopicPath) -> dict[str, object]:
        shown = topics.schemas(name)
        return {
            "schemas": [{"origin": schema.origin, "text": schema.text} for schema in shown.schemas],
            "problem": shown.problem,
        }

    @router.get("/{name}/messages", summary="Decoded messages of a topic: the newest, or from an offset on")
    def messages(name: TopicPath, last: Last = 5, partition: Partition = None, offset: Offset = None) -> dict[str, object]:
        shown = topics.messages(name, Wanted(last, partition, offset))
        return {"messages": [_message(message) for message in shown]}

    return router


def _topic(status: TopicStatus) -> dict[str, object]:
    return {
        "name": status.name,
        "partitions": len(status.partitions),
        "messages": status.messages,
        "lag": status.lag,
        "readers": [
            {"label": reader.label, "table": reader.table, "format": reader.format, "lag": reader.lag}
            for reader in status.readers
        ],
    }


def _message(message: ShownMessage) -> dict[str, object]:
    return {
        "partition": message.partition,
        "offset": message.offset,
        "at": message.at.isoformat() if message.at else None,
        "key": _part(message.key),
        "value": _part(message.value),
        "headers": [{"name": name, **_part(value)} for name, value in message.headers],
    }


def _part(shown: Shown) -> dict[str, object]:
    text, note = cut(shown, _LONGEST)
    return {
        "form": shown.form,
        "text": text,
        "note": note,
        "size": shown.size,
        "schema": shown.schema,
        "about": shown.about,
        "reason": shown.reason,
    }
