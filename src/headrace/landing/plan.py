"""Step 1, plan: which offsets of which partitions a batch takes, and which task takes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from headrace.errors import GapError, TopicResetError
from headrace.iceberg.ledgers.landing import Ledger
from headrace.landing.batch import Range

_WORTH_A_TASK = 5_000
WAYS_OUT = (
    "The stream stops until you choose.\n"
    "To land the topic from its beginning and keep the rows landed so far, run: "
    "headrace land PIPELINE --replaced-topic restart\n"
    "If it has the same messages at the same offsets (it was restored or mirrored), run: "
    "headrace land PIPELINE --replaced-topic continue\n"
    "If this is the wrong Kafka, set KAFKA_BOOTSTRAP_SERVERS to the one that the table was landed from."
)


@dataclass(frozen=True)
class Bounds:
    """The offsets that Kafka has of one partition: `low` (included) to `high` (excluded)."""

    low: int
    high: int


def ranges_to_land(topic: str, ledger: Ledger, bounds: Mapping[int, Bounds]) -> tuple[Range, ...]:
    """Return what of a topic has not been landed yet. A partition that was never read starts at its oldest offset.

    Raises GapError where Kafka has already deleted what comes next, TopicResetError where it has less than was landed.
    """
    ranges: list[Range] = []
    for partition, there in sorted(bounds.items()):
        start = ledger.offsets.get(partition, there.low)
        if start < there.low:
            raise GapError(
                f"Kafka has deleted offsets {start} to {there.low - 1} of partition {partition} before they were landed",
                where=f"topic {topic}",
                next_step=f"{there.low - start} messages are gone. To go on without them and have the gap recorded, run: "
                "headrace land PIPELINE --accept-gaps",
            )
        if start > there.high:
            raise TopicResetError(
                f"partition {partition} ends at offset {there.high}, but offsets up to {start - 1} were landed from it",
                where=f"topic {topic}",
                next_step=f"The topic was deleted and created again, or this is another Kafka. {WAYS_OUT}",
            )
        ranges.append(Range(topic, partition, start, there.high))
    return tuple(ranges)


def accept_gaps(ledger: Ledger, bounds: Mapping[int, Bounds]) -> Ledger:
    """Return the ledger moved past what Kafka has deleted, with each gap recorded."""
    gaps = tuple(
        (partition, ledger.offsets[partition], there.low)
        for partition, there in sorted(bounds.items())
        if partition in ledger.offsets and ledger.offsets[partition] < there.low
    )
    moved = {**ledger.offsets, **{partition: low for partition, _, low in gaps}}
    return replace(ledger, offsets=moved, gaps=(*ledger.gaps, *gaps))


def end_at(ranges: Sequence[Range], until: Mapping[tuple[str, int], int] | None) -> tuple[Range, ...]:
    """Return the ranges up to `until`, which has an end for each topic and partition; None has no end."""
    if until is None:
        return tuple(ranges)
    ends = [until.get((part.topic, part.partition), part.start) for part in ranges]
    return tuple(replace(part, end=max(part.start, min(part.end, end))) for part, end in zip(ranges, ends, strict=True))


def limit_ranges(ranges: Sequence[Range], *, most: int) -> tuple[Range, ...]:
    """Return the ranges cut to `most` messages in all, each topic and partition keeping its share."""
    total = sum(part.size for part in ranges)
    if total <= most:
        return tuple(ranges)
    return tuple(
        replace(part, end=part.start + max(1, part.size * most // total) if part.size else part.end) for part in ranges
    )


def pack_ranges(ranges: Sequence[Range], *, cores: int) -> tuple[tuple[Range, ...], ...]:
    """Return the ranges shared out to tasks of about the same size: no more tasks than cores, and none for a few messages.

    A range is cut where a task is full, so one long partition still uses every core.
    """
    todo = [part for part in ranges if part.size]
    total = sum(part.size for part in todo)
    count = max(1, min(cores, total // _WORTH_A_TASK))
    share = -(-total // count) if count else 0
    tasks: list[list[Range]] = [[]]
    room = share
    for part in todo:
        while part.size:
            if room == 0:
                tasks.append([])
                room = share
            taken = replace(part, end=min(part.end, part.start + room))
            tasks[-1].append(taken)
            room -= taken.size
            part = replace(part, start=taken.end)
    return tuple(tuple(task) for task in tasks if task)
