"""The ranges that a replay reads again, and the errors if Kafka no longer has them."""

from __future__ import annotations

import pytest

from headrace.errors import GapError, TopicResetError
from headrace.landing.batch import Range
from headrace.landing.plan import Bounds
from headrace.operations.replay.ranges import HeldOffsets, ranges_to_replay


def test_ranges_to_replay_cover_the_window_in_kafka_and_in_the_lake() -> None:
    ranges = ranges_to_replay(
        "things",
        {0: 100, 1: 100, 2: 50, 3: 10},
        {0: Bounds(0, 120), 1: Bounds(0, 100), 2: Bounds(10, 50), 3: Bounds(0, 10)},
        first={0: 20, 1: 30, 2: None, 3: None},
        after={0: 60, 1: None, 2: None, 3: None},
        held={0: HeldOffsets(15, 70), 2: HeldOffsets(40, 41)},
    )
    assert ranges == (
        Range("things", 0, 15, 71),  # timestamps are out of order: the lake has more of the window than Kafka's offsets suggest
        Range("things", 1, 30, 100),  # the lake has nothing of it, so Kafka's range applies
        Range("things", 2, 40, 50),
    )


def test_ranges_to_replay_end_at_the_landed_offsets() -> None:
    ranges = ranges_to_replay("things", {0: 5}, {0: Bounds(0, 900)}, first={0: 2}, after={}, held={})
    assert ranges == (Range("things", 0, 2, 5),)


def test_ranges_to_replay_raise_a_gap_with_the_offsets_of_every_partition() -> None:
    bounds = {0: Bounds(10, 50), 1: Bounds(20, 50)}
    with pytest.raises(GapError, match=r"offsets 3 to 9 of partition 0, offsets 4 to 5 of partition 1, which"):
        ranges_to_replay(
            "things", {0: 50, 1: 50}, bounds, first={}, after={}, held={0: HeldOffsets(3, 30), 1: HeldOffsets(4, 5)}
        )


def test_ranges_to_replay_raise_if_the_topic_is_shorter_than_the_ledger() -> None:
    with pytest.raises(TopicResetError, match="ends at offset 7, but offsets up to 9 were landed"):
        ranges_to_replay("things", {0: 10}, {0: Bounds(0, 7)}, first={}, after={}, held={})
