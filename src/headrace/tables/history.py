"""How much of a table's history is kept, so that committing costs the same after a year as on the first day."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from pyiceberg.table.snapshots import Snapshot

RECENT = 200
_AT_ONCE = 100
_HOUR_MS = 3_600_000
_HOURS = 7 * 24


def snapshots_to_drop(snapshots: Sequence[Snapshot], *, protected: Collection[int], now_ms: int) -> list[int]:
    """Gives back the ids of snapshots to leave out of the history: all but the newest 200 and, for a week, one an hour.

    Snapshots in `protected` (branches and tags) are kept. Nothing is dropped until a hundred can be: most commits do nothing.
    """
    if len(snapshots) < RECENT + _AT_ONCE:
        return []
    ordered = sorted(snapshots, key=lambda snapshot: snapshot.timestamp_ms)
    last_of_hour = {snapshot.timestamp_ms // _HOUR_MS: snapshot.snapshot_id for snapshot in ordered}
    oldest_hour = now_ms // _HOUR_MS - _HOURS
    kept = {snapshot_id for hour, snapshot_id in last_of_hour.items() if hour >= oldest_hour}
    dropped = [
        snapshot.snapshot_id
        for snapshot in ordered[:-RECENT]
        if snapshot.snapshot_id not in kept and snapshot.snapshot_id not in protected
    ]
    return dropped if len(dropped) >= _AT_ONCE else []
