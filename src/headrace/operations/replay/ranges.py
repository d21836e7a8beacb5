"""Find the offset ranges that a replay reads again, and report offsets that Kafka no longer has."""

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
class HeldOffsets:
    """The first and last offset of a partition that the lake has within a window."""

    first: int
    last: int


def ranges_to_replay(
    topic: str,
    ends: Mapping[int, int],
    bounds: Mapping[int, Bounds],
    *,
    first: Mapping[int, int | None],
    after: Mapping[int, int | None],
    held: Mapping[int, HeldOffsets],
) -> tuple[Range, ...]:
    """Return the ranges with all messages of a window that were landed, or should have been.

    `ends` are the landed end offsets. `first` is Kafka's first offset in the window and `after` the first one after it.
    Timestamps may be out of order, so the lake's offsets of the window (`held`) widen the range.

    Raise a GapError if Kafka no longer has offsets that the lake has, and a TopicResetError if a partition ends before the
    landed end.
    """
    ranges, gaps = [], []
    for partition, end in sorted(ends.items()):
        available = bounds.get(partition, Bounds(0, 0))
        if end > available.high:
            raise TopicResetError(
                f"partition {partition} ends at offset {available.high}, but offsets up to {end - 1} were landed from it",
                where=f"topic {topic}",
                next_step="Nothing was changed. The topic was deleted and created again, or this is another Kafka cluster.",
            )
        held_here = held.get(partition)
        starts = [offset for offset in (first.get(partition), held_here.first if held_here else None) if offset is not None]
        start = min(starts, default=end)
        stop = after.get(partition)
        stop = end if stop is None else min(end, max(stop, held_here.last + 1 if held_here else 0))
        if held_here and held_here.first < available.low:
            gaps.append(f"offsets {held_here.first} to {min(held_here.last, available.low - 1)} of partition {partition}")
        ranges.append(Range(topic, partition, max(start, available.low), max(stop, start, available.low)))
    if gaps:
        raise gap_error(topic, gaps)
    return tuple(part for part in ranges if part.size > 0)


def gap_error(topic: str, gaps: list[str]) -> GapError:
    """Return the error for messages that the lake has, but Kafka no longer has."""
    return GapError(
        f"Kafka no longer has {', '.join(gaps)}, which the lake has",
        where=f"topic {topic}",
        next_step="Nothing was changed. Replay from a later time that Kafka still has, or rebuild the tables from the raw "
        "tables: headrace replay PIPELINE --from-raw",
    )


def find_ranges(admin: AdminClient, target: Target, held: Mapping[int, HeldOffsets]) -> tuple[Range, ...]:
    """Return the ranges of a stream's topic within the target's window, from Kafka's offsets."""
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
    offsets = list_offsets_at(admin, keys, milliseconds=round(moment.timestamp() * 1_000))
    return {partition: offset for (_, partition), offset in offsets.items()}
