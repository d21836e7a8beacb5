"""The snapshots that a commit removes from a table's history."""

from __future__ import annotations

from headrace.iceberg.commits.history import RECENT, DatedSnapshot, snapshots_to_drop

DAY_MS = 86_400_000
NOW_MS = 1_000 * DAY_MS


def every_second(count: int, *, until_ms: int = NOW_MS) -> list[DatedSnapshot]:
    """Return snapshots with the ids 1 to `count`, one in each second."""
    return [DatedSnapshot(number, until_ms - (count - number) * 1_000) for number in range(1, count + 1)]


def test_history_keeps_snapshots_that_readers_name() -> None:
    snapshots = every_second(130)
    dropped = snapshots_to_drop(snapshots, protected=(2,), readers=(3, 70, 999), now_ms=NOW_MS)
    assert set(dropped) == set(range(1, 130 - RECENT + 1)) - {2, 3, 70}


def test_history_forgets_readers_after_a_week() -> None:
    old, snapshots = DatedSnapshot(1_000, NOW_MS - 8 * DAY_MS), every_second(130)
    later_that_day = DatedSnapshot(1_001, old.timestamp_ms + 1_000)
    dropped = snapshots_to_drop([old, later_that_day, *snapshots], protected=(), readers=(1_000, 5), now_ms=NOW_MS)
    assert 1_000 in dropped
    assert not {1_001, 5} & set(dropped), "the last of a day stays, and a reader of this week"


def test_history_drops_nothing_until_many_can_be() -> None:
    assert snapshots_to_drop(every_second(99), protected=(), readers=(), now_ms=NOW_MS) == []
    assert snapshots_to_drop(every_second(110), protected=(), readers=range(1, 20), now_ms=NOW_MS) == []
