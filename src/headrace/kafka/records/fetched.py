"""What a client of records is: two of them read partitions, and landing knows neither how."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from headrace.errors import ServiceError
from headrace.kafka.records.batches import Position, RecordBatch


class KafkaUnavailableError(Exception):
    """Kafka, or the leader of a partition, is unavailable."""


class UnknownProtocolError(ServiceError):
    """The broker speaks no version of a request that Headrace knows."""


class FetchedPart(Protocol):
    """Records of one partition. `refusal` is the name of an error that a retry does not fix."""

    @property
    def topic(self) -> str: ...

    @property
    def partition(self) -> int: ...

    @property
    def refusal(self) -> str: ...

    def next_offset(self, position: Position) -> int: ...

    def batches(self, position: Position) -> Iterable[RecordBatch]: ...


class RecordClient(Protocol):
    """Reads the records of partitions. `ask` and `answer` raise a KafkaUnavailableError during an outage."""

    def ask(self, positions: Iterable[Position]) -> None: ...

    def answer(self) -> Sequence[FetchedPart]: ...

    def reset(self) -> None: ...

    def give_up(self) -> None: ...
