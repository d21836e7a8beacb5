"""Fake topics, for pages and commands without a Kafka."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timezone

from headrace.errors import NotFoundError, UnavailableError
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

TOPIC = "shop_charges"
LABEL = "shop.charges"


@dataclass
class PlayedTopics:
    """One topic with one partition, which the shop lands. `values` are its messages; `away` simulates an outage."""

    values: list[bytes | None] = field(default_factory=list)
    landed: int = 0
    away: bool = False
    key: bytes | None = b"k"

    def all(self) -> tuple[TopicStatus, ...]:
        return (self.one(TOPIC),)

    def one(self, name: str) -> TopicStatus:
        if self.away:
            raise UnavailableError("Kafka is not running or does not answer", next_step="Run: headrace up")
        if name != TOPIC:
            raise NotFoundError(f'topic not found: "{name}"')
        end = len(self.values)
        lag = end - self.landed
        partition = PartitionStatus(0, 0, end, {LABEL: lag})
        return TopicStatus(TOPIC, (partition,), (TopicReader(LABEL, "shop", "raw.charges", "json", lag),))

    def schemas(self, name: str) -> ShownSchemas:
        self.one(name)
        return ShownSchemas((ShownSchema("shop.charges, json", "id string NOT NULL"),))

    def messages(self, name: str, wanted: Wanted) -> tuple[ShownMessage, ...]:
        self.one(name)
        first = max(0, len(self.values) - wanted.count) if wanted.offset is None else wanted.offset
        at = datetime(2026, 2, 24, 20, tzinfo=timezone.utc)
        return tuple(
            ShownMessage(
                0,
                first + index,
                at,
                read_part(self.key, Writing()),
                read_part(value, Writing()),
                (("trace", read_header("trace", b"t-1")),),
            )
            for index, value in enumerate(self.values[first : first + wanted.count])
        )
