"""Step 1, plan: choose the offsets of a batch and assign them to tasks."""

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
    "If this is the wrong Kafka cluster, set KAFKA_BOOTSTRAP_SERVERS to the one that the table was landed from."
)


@dataclass(frozen=True)
class Bounds:
    """The offsets of one partition in Kafka: `low` (included) to `high` (excluded)."""

    low: int
    high: int


def ranges_to_land(topic: str, ledger: Ledger, bounds: Mapping[int, Bounds]) -> tuple[Range, ...]:
    """Return the ranges of a topic that have not been landed. A new partition starts at its oldest offset.

    Raise a GapError if Kafka has already deleted the next offsets, and a TopicResetError if a partition ends before the offset
    that was landed last.
    """
    ranges: list[Range] = []
    for partition, available in sorted(bounds.items()):
        start = ledger.offsets.get(partition, available.low)
        if start < available.low:
            raise GapError(
                f"Kafka has deleted offsets {start} to {available.low - 1} of partition {partition} before they were landed",
                where=f"topic {topic}",
                next_step=f"{available.low - start} messages are gone. To continue without them and record the gap, run: "
                "headrace land PIPELINE --accept-gaps",
            )
        if start > available.high:
            raise TopicResetError(
                f"partition {partition} ends at offset {available.high}, but offsets up to {start - 1} were landed from it",
                where=f"topic {topic}",
                next_step=f"The topic was deleted and created again, or this is another Kafka cluster. {WAYS_OUT}",
            )
        ranges.append(Range(topic, partition, start, available.high))
    return tuple(ranges)


def accept_gaps(ledger: Ledger, bounds: Mapping[int, Bounds]) -> Ledger:
    """Return the ledger moved past the offsets that Kafka has deleted, with each gap recorded."""
    gaps = tuple(
        (partition, ledger.offsets[partition], available.low)
        for partition, available in sorted(bounds.items())
        if partition in ledger.offsets and ledger.offsets[partition] < available.low
    )
    moved = {**ledger.offsets, **{partition: low for partition, _, low in gaps}}
    return replace(ledger, offsets=moved, gaps=(*ledger.gaps, *gaps))


def end_at(ranges: Sequence[Range], until: Mapping[tuple[str, int], int] | None) -> tuple[Range, ...]:
    """Return the ranges cut at `until`, an end offset for each topic and partition; None cuts nothing."""
    if until is None:
        return tuple(ranges)
    ends = [until.get((part.topic, part.partition), part.start) for part in ranges]
    return tuple(replace(part, end=max(part.start, min(part.end, end))) for part, end in zip(ranges, ends, strict=True))


def limit_ranges(ranges: Sequence[Range], *, most: int) -> tuple[Range, ...]:
    """Return the ranges cut to `most` messages in total, in proportion to their sizes."""
    total = sum(part.size for part in ranges)
    if total <= most:
        return tuple(ranges)
    return tuple(
        replace(part, end=part.start + max(1, part.size * most // total) if part.size else part.end) for part in ranges
    )


def pack_ranges(ranges: Sequence[Range], *, cores: int) -> tuple[tuple[Range, ...], ...]:
    """Return the ranges packed into tasks of about equal size: at most one per core, and fewer for few messages.

    A range is split where a task is full, so one long partition still uses every core.
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
