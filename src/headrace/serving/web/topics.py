"""The values that `headrace topics` and the web pages show about topics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from headrace.serving.web.message_text import BYTES_SHOWN, Shown

MOST_MESSAGES = 100


@dataclass(frozen=True)
class TopicReader:
    """A stream that lands a topic. `label` is its pipeline and name; `lag` is the number of messages it has not landed yet."""

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
    """A topic, its partitions and the streams that land it. `differences` are settings that streams declare otherwise."""

    name: str
    partitions: tuple[PartitionStatus, ...]
    readers: tuple[TopicReader, ...]
    differences: tuple[str, ...] = ()

    @property
    def messages(self) -> int:
        """The number of offsets; there are fewer messages if the topic has transaction markers or is compacted."""
        return sum(partition.high - partition.low for partition in self.partitions)

    @property
    def lag(self) -> int | None:
        """The lag of the slowest reader; None without readers."""
        return max((reader.lag for reader in self.readers), default=None)


@dataclass(frozen=True)
class ShownSchema:
    """A schema of a topic's messages and its origin: a stream's file, or a version of a registry's subject."""

    origin: str
    text: str


@dataclass(frozen=True)
class ShownSchemas:
    """The schemas of a topic; `problem` says why the registry's are missing, if it has failed."""

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
    """The requested messages: the newest of all partitions or of one, or the messages from an offset on."""

    count: int = 5
    partition: int | None = None
    offset: int | None = None


class Topics(Protocol):
    """Reads topics. Raises an UnavailableError in an outage of Kafka, and a NotFoundError for an unknown topic."""

    def all(self) -> tuple[TopicStatus, ...]:
        """Return all topics except Kafka's internal ones, sorted by name."""

    def one(self, name: str) -> TopicStatus:
        """Return one topic, which may be internal."""

    def schemas(self, name: str) -> ShownSchemas:
        """Return the known schemas of a topic's messages."""

    def messages(self, name: str, wanted: Wanted) -> tuple[ShownMessage, ...]:
        """Return messages, oldest first."""


def cut(shown: Shown, most: int) -> tuple[str, str]:
    """Return the first `most` characters of a text, and a note with its size if it was truncated."""
    text = shown.text[:most]
    if len(text) == len(shown.text) and not (shown.form == "bytes" and shown.size > BYTES_SHOWN):
        return text, ""
    return text, f"truncated, {shown.size:,} bytes in total"
