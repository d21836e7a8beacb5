"""What the pages of topics ask for, as JSON."""

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
Last = Annotated[int, Query(ge=1, le=MOST_MESSAGES, description="how many messages")]
Partition = Annotated[int | None, Query(ge=0, le=_LARGEST_PARTITION, description="of this partition alone")]
Offset = Annotated[int | None, Query(ge=0, le=_LARGEST_OFFSET, description="from this offset of the partition on")]


def make_topics_api(topics: Topics) -> APIRouter:
    """Return the routes below /api/topics."""
    router = APIRouter(prefix="/api/topics", responses=REFUSALS)

    @router.get("", summary="Every topic: partitions, messages, who lands it and how far behind that is")
    def every() -> dict[str, object]:
        return {"topics": [_topic(each) for each in topics.all()]}

    @router.get("/{name}", summary="One topic, partition by partition")
    def one(name: TopicPath) -> dict[str, object]:
        found = topics.one(name)
        partitions = [
            {"partition": each.partition, "low": each.low, "high": each.high, "lags": dict(each.lags)}
            for each in found.partitions
        ]
        return {**_topic(found), "offsets": partitions}

    @router.get("/{name}/schemas", summary="The schemas of a topic's messages")
    def schemas(name: TopicPath) -> dict[str, object]:
        found = topics.schemas(name)
        return {"schemas": [{"origin": each.origin, "text": each.text} for each in found.schemas], "problem": found.problem}

    @router.get("/{name}/messages", summary="Messages of a topic, decoded; the newest, or those from an offset on")
    def messages(name: TopicPath, last: Last = 5, partition: Partition = None, offset: Offset = None) -> dict[str, object]:
        found = topics.messages(name, Wanted(last, partition, offset))
        return {"messages": [_message(each) for each in found]}

    return router


def _topic(status: TopicStatus) -> dict[str, object]:
    return {
        "name": status.name,
        "partitions": len(status.partitions),
        "messages": status.messages,
        "lag": status.lag,
        "readers": [
            {"label": each.label, "table": each.table, "format": each.format, "lag": each.lag} for each in status.readers
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
