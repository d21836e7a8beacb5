"""Step 1: choose the offsets of a batch and assign them to tasks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import GapError, TopicResetError
from headrace.iceberg.ledgers.landing import Ledger
from headrace.landing.batch import Range
from headrace.landing.plan import Bounds, accept_gaps, end_at, limit_ranges, pack_ranges, ranges_to_land

ranges = st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 10**5) | st.integers(0, 20)), max_size=30).map(
    lambda some: [Range(f"t{index % 3}", index // 3, start, start + size) for index, (start, size) in enumerate(some)]
)


def offsets_of(some: list[Range]) -> dict[tuple[str, int], list[tuple[int, int]]]:
    """Return the offsets that ranges cover, merged, by partition."""
    offsets: dict[tuple[str, int], list[tuple[int, int]]] = {}
    for part in sorted(some, key=lambda part: (part.topic, part.partition, part.start)):
        if not part.size:
            continue
        spans = offsets.setdefault((part.topic, part.partition), [])
        if spans and spans[-1][1] == part.start:
            spans[-1] = (spans[-1][0], part.end)
        else:
            spans.append((part.start, part.end))
    return offsets


@given(ranges, st.integers(1, 64))
def test_pack_ranges_covers_each_offset_once(some: list[Range], cores: int) -> None:
    tasks = pack_ranges(some, cores=cores)
    taken = [part for task in tasks for part in task]
    assert offsets_of(taken) == offsets_of(some)
    assert sum(part.size for part in taken) == sum(part.size for part in some)
    assert len(tasks) <= cores


@given(ranges, st.integers(1, 64))
def test_pack_ranges_makes_tasks_of_equal_size(some: list[Range], cores: int) -> None:
    sizes = [sum(part.size for part in task) for task in pack_ranges(some, cores=cores)]
    assert all(sizes)
    if sizes:
        assert max(sizes) - min(sizes) <= max(len(sizes), max(sizes) - sizes[-1])
        assert all(size == sizes[0] for size in sizes[:-1]), "only the last may have less"


def test_pack_ranges_splits_a_long_partition_and_keeps_few_messages_together() -> None:
    assert [sum(part.size for part in task) for task in pack_ranges([Range("t", 0, 0, 100_000)], cores=4)] == [25_000] * 4
    assert len(pack_ranges([Range("t", part, 0, 10) for part in range(10)], cores=4)) == 1
    assert pack_ranges([], cores=4) == ()


@given(ranges, st.integers(1, 10**6))
def test_limit_ranges_bounds_a_batch(some: list[Range], most: int) -> None:
    taken = limit_ranges(some, most=most)
    assert len(taken) == len(some)
    assert sum(part.size for part in taken) <= most + sum(part.size > 0 for part in some)
    for before, after in zip(some, taken, strict=True):
        assert (after.topic, after.partition, after.start) == (before.topic, before.partition, before.start)
        assert after.end <= before.end
        assert bool(after.size) == bool(before.size), "every partition moves on in every batch"


@given(st.dictionaries(st.integers(0, 20), st.tuples(st.integers(0, 100), st.integers(0, 100), st.integers(0, 100))))
def test_ranges_to_land_start_at_the_ledger(partitions: dict[int, tuple[int, int, int]]) -> None:
    """Each partition has a low end, a landed offset at or above it, and a high end at or above that."""
    ledger = Ledger(offsets={key: low + landed for key, (low, landed, _) in partitions.items()})
    bounds = {key: Bounds(low, low + landed + left) for key, (low, landed, left) in partitions.items()}
    assert ranges_to_land("t", ledger, bounds) == tuple(
        Range("t", key, low + landed, low + landed + left) for key, (low, landed, left) in sorted(partitions.items())
    )


def test_ranges_to_land_start_a_new_partition_at_its_oldest_offset() -> None:
    assert ranges_to_land("t", Ledger(offsets={0: 5}), {0: Bounds(0, 9), 1: Bounds(3, 4)}) == (
        Range("t", 0, 5, 9),
        Range("t", 1, 3, 4),
    )


def test_ranges_to_land_raise_a_gap_that_can_be_accepted() -> None:
    ledger, bounds = Ledger(checkpoint_id=4, offsets={0: 5, 1: 7}), {0: Bounds(9, 20), 1: Bounds(0, 7), 2: Bounds(4, 4)}
    with pytest.raises(GapError, match=r"offsets 5 to 8 of partition 0") as raised:
        ranges_to_land("t", ledger, bounds)
    assert "4 messages are gone" in raised.value.next_step
    accepted = accept_gaps(ledger, bounds)
    assert accepted.gaps == ((0, 5, 9),)
    assert dict(accepted.offsets) == {0: 9, 1: 7}
    assert ranges_to_land("t", accepted, bounds) == (Range("t", 0, 9, 20), Range("t", 1, 7, 7), Range("t", 2, 4, 4))
    assert accept_gaps(accepted, bounds) == accepted


def test_ranges_to_land_raise_if_the_topic_is_shorter_than_the_ledger() -> None:
    with pytest.raises(TopicResetError, match="partition 1 ends at offset 3, but offsets up to 4 were landed"):
        ranges_to_land("t", Ledger(offsets={1: 5}), {1: Bounds(0, 3)})


def test_end_at_cuts_ranges() -> None:
    ranges = (Range("t", 0, 5, 20), Range("t", 1, 5, 20), Range("t", 2, 5, 20), Range("u", 0, 5, 20))
    until = {("t", 0): 10, ("t", 1): 3, ("t", 2): 99}
    assert end_at(ranges, until) == (Range("t", 0, 5, 10), Range("t", 1, 5, 5), Range("t", 2, 5, 20), Range("u", 0, 5, 5))
    assert end_at(ranges, None) == ranges
