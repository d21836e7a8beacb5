"""Which offsets a replay reads again, and what Kafka no longer has of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from confluent_kafka.admin import AdminClient

from headrace.errors import GapError, TopicResetError
from headrace.iceberg.ledgers.replay import Window
from headrace.kafka.topics import describe_topics, list_bounds, list_offsets_at
from headrace.landing.batch import Range
from headrace.landing.plan import Bounds
from headrace.landing.replaced_topics import check_topic
from headrace.operations.replay.target import Target


@dataclass(frozen=True)
class Held:
    """The first and the last offset of a partition that the lake has within a window."""

    first: int
    last: int


def ranges_to_replay(
    topic: str,
    ends: Mapping[int, int],
    bounds: Mapping[int, Bounds],
    *,
    first: Mapping[int, int | None],
    after: Mapping[int, int | None],
    held: Mapping[int, Held],
) -> tuple[Range, ...]:
    """Return the ranges that have all messages of a window which were landed, and all that should have been.

    `ends` is how far each partition was landed. `first` is the first offset in the window and `after` the first behind it, as
    Kafka has them; timestamps need not be in order, so what the lake has of the window (`held`) widens the range.

    Raises GapError where Kafka no longer has what the lake has, TopicResetError where it has less than was landed.
    """
    ranges, gaps = [], []
    for partition, end in sorted(ends.items()):
        there = bounds.get(partition, Bounds(0, 0))
        if end > there.high:
            raise TopicResetError(
                f"partition {partition} ends at offset {there.high}, but offsets up to {end - 1} were landed from it",
                where=f"topic {topic}",
                next_step="The topic was deleted and made again, or this is another Kafka: offsets name other messages now.",
            )
        mine = held.get(partition)
        starts = [offset for offset in (first.get(partition), mine.first if mine else None) if offset is not None]
        start = min(starts, default=end)
        stop = after.get(partition)
        stop = end if stop is None else min(end, max(stop, mine.last + 1 if mine else 0))
        if mine and mine.first < there.low:
            gaps.append(f"offsets {mine.first} to {min(mine.last, there.low - 1)} of partition {partition}")
        ranges.append(Range(topic, partition, max(start, there.low), max(stop, start, there.low)))
    if gaps:
        raise gap_error(topic, gaps)
    return tuple(part for part in ranges if part.size > 0)


def gap_error(topic: str, gaps: list[str]) -> GapError:
    """Return the error for messages that the lake has and Kafka no longer."""
    return GapError(
        f"Kafka no longer has {', '.join(gaps)}, which the lake has",
        where=f"topic {topic}",
        next_step="Nothing was changed. Replay from a later time on, which Kafka has; or write the tables anew from the raw "
        "tables alone: headrace replay PIPELINE --from-raw",
    )


def find_ranges(admin: AdminClient, target: Target, held: Mapping[int, Held]) -> tuple[Range, ...]:
    """Return what of a stream's topic lies in the target's window; Kafka is asked."""
    topic, window = target.stream.topic, target.window
    state = describe_topics(admin, [topic]).get(topic)
    check_topic(topic, target.ledger, state.identity if state else None)
    keys = [(topic, partition) for partition in (state.partitions if state else ())]
    bounds = {key[1]: Bounds(*there) for key, there in list_bounds(admin, keys).items()}
    return ranges_to_replay(
        topic,
        target.ledger.offsets,
        bounds,
        first=_offsets(admin, keys, window, end=False) or {partition: there.low for partition, there in bounds.items()},
        after=_offsets(admin, keys, window, end=True),
        held=held,
    )


def _offsets(admin: AdminClient, keys: list[tuple[str, int]], window: Window, *, end: bool) -> dict[int, int | None]:
    moment = window.until if end else window.since
    if moment is None:
        return {}
    found = list_offsets_at(admin, keys, milliseconds=round(moment.timestamp() * 1_000))
    return {partition: offset for (_, partition), offset in found.items()}
