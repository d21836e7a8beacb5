"""Step 2, read: the records of some ranges, from Kafka, in chunks.

The reader lives as long as the Python worker that holds it, with its connections.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache

from headrace.errors import UnavailableError
from headrace.landing.batch import Range
from headrace.landing.records import AwayError, FetchClient, Fetched, Position, Records, next_offset, split_batches

CHUNK_BYTES = 4 * 1024 * 1024
_PATIENCE_SECONDS = 5.0  # for each of Spark's four tries: then landing is told, waits and says so
_PAUSE_SECONDS = 0.1
_Open = dict[tuple[str, int], Position]


class RangeReader:
    """Reads ranges. A range ends by position, so gaps and transaction markers never hang it."""

    def __init__(self, consumer: tuple[tuple[str, str], ...]) -> None:
        self._client = FetchClient(consumer)

    def read(self, ranges: Sequence[Range]) -> Iterator[Records]:
        """Yields the ranges' records, committed ones only, each topic's in chunks of about CHUNK_BYTES.

        While a chunk is worked on, what comes next is under way. A range that is given up half-way leaves the reader usable.
        """
        places = [Position(part.topic, part.partition, part.start, part.end) for part in ranges if part.size > 0]
        left: _Open = {(place.topic, place.partition): place for place in places}
        chunks: dict[str, Records] = {}
        deadline = time.monotonic() + _PATIENCE_SECONDS
        try:
            while left:
                answers = [(left[one.topic, one.partition], one) for one in self._fetch(left)]
                moved = [_move(left, place, fetched) for place, fetched in answers]
                if any(moved):
                    deadline = time.monotonic() + _PATIENCE_SECONDS
                elif time.monotonic() > deadline:
                    raise UnavailableError(
                        f"Kafka gave no message for {_PATIENCE_SECONDS:.0f} s",
                        where=", ".join(f"{topic}[{partition}]" for topic, partition in sorted(left)),
                        next_step="Check that the broker answers: headrace status",
                    )
                self._ask(left)
                for place, fetched in answers:
                    for batch in split_batches(fetched.data, place, fetched.aborted):
                        chunk = chunks.setdefault(place.topic, Records(place.topic))
                        chunk.add(batch)
                        if chunk.bytes >= CHUNK_BYTES:
                            yield chunks.pop(place.topic)
            yield from chunks.values()
        finally:
            self._client.give_up()

    def _ask(self, left: _Open) -> bool:
        try:
            self._client.ask(left.values())
            return True
        except AwayError:
            self._client.reset()
            return False

    def _fetch(self, left: _Open) -> list[Fetched]:
        """Gives back an answer; nothing, after a pause, if Kafka is away."""
        if self._ask(left):
            try:
                return self._client.answer()
            except AwayError:
                self._client.reset()
        time.sleep(_PAUSE_SECONDS)
        return []


def _move(left: _Open, place: Position, fetched: Fetched) -> bool:
    """Moves a position past what was fetched, and drops it at its end; says whether there was anything."""
    if fetched.refusal:
        raise UnavailableError(
            f"Kafka refuses to give the messages from offset {place.next} on: {fetched.refusal}",
            where=f"{place.topic}[{place.partition}]",
            next_step="The offsets are looked at again before the next try.",
        )
    offset = next_offset(fetched.data, place)
    if offset >= place.end:
        del left[place.topic, place.partition]
    else:
        left[place.topic, place.partition] = replace(place, next=offset)
    return offset > place.next


@lru_cache(maxsize=4)
def reader_of_this_worker(consumer: tuple[tuple[str, str], ...]) -> RangeReader:
    """Gives back the reader that this process keeps for its whole life."""
    return RangeReader(consumer)
