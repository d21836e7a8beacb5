"""Step 2, read: fetch the records of offset ranges from Kafka in chunks.

A reader and its connections live as long as its Python worker.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache

from headrace.errors import HeadraceError, UnavailableError
from headrace.kafka.client import AUTO, BATCHES, READER
from headrace.kafka.records import (
    FetchClient,
    FetchedPart,
    KafkaUnavailableError,
    Position,
    RecordBatch,
    RecordClient,
    Records,
    UnknownProtocolError,
)
from headrace.landing.batch import Range

_LOG = logging.getLogger(__name__)
CHUNK_BYTES = 4 * 1024 * 1024
_SILENCE_SECONDS = 5.0  # after that the error reaches landing, which retries with backoff
_PAUSE_SECONDS = 0.1
_Open = dict[tuple[str, int], Position]
Failed = Callable[[str, Exception], None]
"""Called with a topic that can't be read, and the reason."""


class RangeReader:
    """Read ranges. A range ends by position, so gaps and transaction markers can't block it."""

    def __init__(self, consumer: tuple[tuple[str, str], ...]) -> None:
        """`consumer` is the configuration of KafkaServers.task_config, which names the reader."""
        self._config = tuple(pair for pair in consumer if pair[0] != READER)
        self._reader = dict(consumer).get(READER, AUTO)
        self._client: RecordClient = FetchClient(self._config) if self._reader in (AUTO, BATCHES) else self._open_consumer()

    def read(self, ranges: Sequence[Range], *, failed: Failed | None = None) -> Iterator[Records]:
        """Yield the committed records of the ranges, in chunks of about CHUNK_BYTES per topic.

        The next fetch is in flight while the caller handles a chunk. The reader stays usable if the caller stops half-way.
        A topic that can't be read is passed to `failed` and the others continue; without `failed` its error is raised.
        """
        places = [Position(part.topic, part.partition, part.start, part.end) for part in ranges if part.size > 0]
        left: _Open = {(place.topic, place.partition): place for place in places}
        chunks: dict[str, Records] = {}
        lost: set[str] = set()

        def give_up(topic: str, error: Exception) -> None:
            if failed is None:
                raise error
            if topic not in lost:
                lost.add(topic)
                failed(topic, error)
            for key in [key for key in left if key[0] == topic]:
                del left[key]

        deadline = time.monotonic() + _SILENCE_SECONDS
        try:
            while left:
                fetched = self._fetch(left)
                answers = [(left[part.topic, part.partition], part) for part in fetched if (part.topic, part.partition) in left]
                moved = [_move(left, place, part, give_up) for place, part in answers]
                if any(moved):
                    deadline = time.monotonic() + _SILENCE_SECONDS
                elif left and time.monotonic() > deadline:
                    silence = _silence(left)
                    for topic in sorted({topic for topic, _ in left}):
                        give_up(topic, silence)
                self._ask(left)
                for place, part in answers:
                    for batch in _split(part, place, give_up) if place.topic not in lost else ():
                        chunk = chunks.setdefault(place.topic, Records(place.topic))
                        chunk.add(batch)
                        if chunk.bytes >= CHUNK_BYTES:
                            yield chunks.pop(place.topic)
            yield from (chunk for topic, chunk in chunks.items() if topic not in lost)
        finally:
            self._client.give_up()

    def _ask(self, left: _Open) -> bool:
        try:
            self._client.ask(left.values())
            return True
        except KafkaUnavailableError:
            self._client.reset()
        except UnknownProtocolError as error:
            if self._reader != AUTO:
                raise
            _LOG.warning("reading Kafka with librdkafka: %s", error.what)
            self._client.reset()
            self._client = self._open_consumer()
        return False

    def _open_consumer(self) -> RecordClient:
        from headrace.kafka.records.consumed import ConsumerClient

        return ConsumerClient(self._config)

    def _fetch(self, left: _Open) -> Sequence[FetchedPart]:
        """Return the next response, or an empty list after a pause if Kafka is unavailable."""
        if self._ask(left):
            try:
                return self._client.answer()
            except KafkaUnavailableError:
                self._client.reset()
        time.sleep(_PAUSE_SECONDS)
        return []


def _split(fetched: FetchedPart, place: Position, give_up: Failed) -> Iterator[RecordBatch]:
    try:
        yield from fetched.batches(place)
    except Exception as error:
        give_up(place.topic, error)


def _silence(left: _Open) -> UnavailableError:
    return UnavailableError(
        f"Kafka returned no messages for {_SILENCE_SECONDS:.0f} s",
        where=", ".join(f"{topic}[{partition}]" for topic, partition in sorted(left)),
        next_step="Check that the broker is up: headrace status",
    )


def _move(left: _Open, place: Position, fetched: FetchedPart, give_up: Failed) -> bool:
    """Move a position past the fetched records, and drop it at its end. Return whether it moved."""
    if (place.topic, place.partition) not in left:
        return True  # another partition of the topic was given up
    if fetched.refusal:
        refusal = UnavailableError(
            f"Kafka refused to fetch from offset {place.next}: {fetched.refusal}",
            where=f"{place.topic}[{place.partition}]",
            next_step="Headrace reads the offsets again before the next try.",
        )
        give_up(place.topic, refusal)
        return True
    try:
        offset = fetched.next_offset(place)
    except HeadraceError as error:
        give_up(place.topic, error)
        return True
    if offset >= place.end:
        del left[place.topic, place.partition]
    else:
        left[place.topic, place.partition] = replace(place, next=offset)
    return offset > place.next


@lru_cache(maxsize=4)
def reader_of_this_worker(consumer: tuple[tuple[str, str], ...]) -> RangeReader:
    """Return the reader of this process, which is created once."""
    return RangeReader(consumer)
