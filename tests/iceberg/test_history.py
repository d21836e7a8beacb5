"""The snapshots that a commit removes from a table's history."""

from __future__ import annotations

from pathlib import Path

from headrace.iceberg.catalog.tables import ensure_table, open_catalog, table_location
from headrace.iceberg.commits.history import RECENT, DatedSnapshot, retention_of, snapshots_to_drop
from headrace.iceberg.maintenance.retention import record_retention
from headrace.settings import load_settings
from headrace.spec import Column, Primitive, TableName

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


def test_history_keeps_days_for_as_long_as_the_table_declares() -> None:
    days = [DatedSnapshot(10_000 + day, NOW_MS - day * DAY_MS) for day in range(1, 120)]
    snapshots = [*days, *every_second(60)]

    def days_left(snapshots_for_ms: int) -> int:
        dropped = snapshots_to_drop(snapshots, protected=(), now_ms=NOW_MS, snapshots_for_ms=snapshots_for_ms)
        return len(days) - len({snapshot.snapshot_id for snapshot in days} & set(dropped))

    assert days_left(0) == days_left(7 * DAY_MS) == 28, "of the day before, a newer snapshot is the last"
    assert days_left(60 * DAY_MS) == 58


def test_retention_is_recorded_in_the_table(tmp_path: Path) -> None:
    settings = load_settings(flags={}, environ={}, folder=tmp_path)
    catalog, name = open_catalog(settings), TableName("raw", "events")
    ensure_table(catalog, name, columns=(Column("id", Primitive("long")),), location=table_location(settings, name))
    for seconds, recorded in ((None, 0), (90.0, 90_000), (90.0, 90_000), (60.0, 60_000), (None, 0)):
        before = catalog.load_table(str(name))
        record_retention(catalog, name, seconds)
        table = catalog.load_table(str(name))
        assert retention_of(table.properties) == recorded
        is_same = retention_of(before.properties) == recorded
        assert (table.metadata_location == before.metadata_location) == is_same, "nothing is committed without a change"
