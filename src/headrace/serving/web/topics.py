"""What is shown of topics: one set of values for `headrace topics` and for the pages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from headrace.serving.web.message_text import BYTES_SHOWN, Shown

MOST_MESSAGES = 100


@dataclass(frozen=True)
class TopicReader:
    """A stream that lands a topic: `label` is its pipeline and name; `lag` is how many messages it has yet to land."""

    label: str
    pipeline: str
    table: str
    format: str
    lag: int


@dataclass(frozen=True)
class PartitionStatus:
    """A partition from its oldest offset to the one after its last committed message, and the lag of each reader."""

    partition: int
    low: int
    high: int
    lags: Mapping[str, int]


@dataclass(frozen=True)
class TopicStatus:
    """A topic, its partitions and who lands it."""

    name: str
    partitions: tuple[PartitionStatus, ...]
    readers: tuple[TopicReader, ...]

    @property
    def messages(self) -> int:
        """How many offsets it holds; where transactions end or messages were compacted away, there are fewer messages."""
        return sum(each.high - each.low for each in self.partitions)

    @property
    def lag(self) -> int | None:
        """How far the reader that is farthest behind is; None where nobody reads it."""
        return max((each.lag for each in self.readers), default=None)


@dataclass(frozen=True)
class ShownSchema:
    """A schema of a topic's messages and who says so: a stream's file, or a version of a registry's subject."""

    origin: str
    text: str


@dataclass(frozen=True)
class ShownSchemas:
    """The schemas of a topic; `problem` says why the registry's are not among them, where that should be."""

    schemas: tuple[ShownSchema, ...]
    problem: str = ""


@dataclass(frozen=True)
class ShownMessage:
    partition: int
    offset: int
    at: datetime | None
    key: Shown
    value: Shown
    headers: tuple[tuple[str, Shown], ...]


@dataclass(frozen=True)
class Wanted:
    """Which messages are asked for: the newest of all partitions or of one, or those from an offset on."""

    count: int = 5
    partition: int | None = None
    offset: int | None = None


class Topics(Protocol):
    """Where topics are looked at. A Kafka that is away is an UnavailableError, an unknown topic a NotFoundError."""

    def all(self) -> tuple[TopicStatus, ...]:
        """Return every topic but Kafka's own, by name."""

    def one(self, name: str) -> TopicStatus:
        """Return one topic, also one of Kafka's own."""

    def schemas(self, name: str) -> ShownSchemas:
        """Return the schemas that a topic's messages are written with, as far as they are known."""

    def messages(self, name: str, wanted: Wanted) -> tuple[ShownMessage, ...]:
        """Return messages, the oldest first."""


def cut(shown: Shown, most: int) -> tuple[str, str]:
    """Return as much of a text as there is room for, and a note of how long it is, where that is not all of it."""
    text = shown.text[:most]
    if len(text) == len(shown.text) and not (shown.form == "bytes" and shown.size > BYTES_SHOWN):
        return text, ""
    return text, f"only its beginning is shown: it has {shown.size:,} bytes"
