"""Snapshot retention in a table's history, so that a commit costs the same after a year as on the first day."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

RECENT = 50
_AT_ONCE = 50
_HOUR_MS = 3_600_000
_DAY_MS = 24 * _HOUR_MS
_HOURS = 24
_DAYS = 30
SNAPSHOTS_FOR = "headrace.snapshots-for-ms"
"""The table property with `snapshots_for` of the table's file, for the commits that thin its history."""
_READ_MS = 7 * _DAY_MS
"""How long a snapshot is retained for a reader: as long as maintenance retains snapshots by default."""


class Dated(Protocol):
    """A snapshot of PyIceberg or of Iceberg's Java library."""

    @property
    def snapshot_id(self) -> int: ...

    @property
    def timestamp_ms(self) -> int: ...


@dataclass(frozen=True)
class DatedSnapshot:
    snapshot_id: int
    timestamp_ms: int


def retention_of(properties: Mapping[str, str]) -> int:
    """Return for how many milliseconds a table declares that its snapshots stay; 0 if it does not."""
    return int(properties.get(SNAPSHOTS_FOR) or 0)  # a Java map has None for a missing key


def snapshots_to_drop(
    snapshots: Sequence[Dated],
    *,
    protected: Collection[int],
    readers: Collection[int] = (),
    now_ms: int,
    snapshots_for_ms: int = 0,
) -> list[int]:
    """Return the ids of snapshots to remove from the history.

    Retained are the newest 50, for a day the last of every hour, for a month or `snapshots_for_ms`, if that is longer, the last
    of every day, the `protected` ones (branches and tags), and for a week the `readers`: snapshots that downstream tables have
    read up to. Nothing is removed until 50 snapshots can be: most commits do nothing.
    """
    if len(snapshots) < RECENT + _AT_ONCE:
        return []
    ordered = sorted(snapshots, key=lambda snapshot: snapshot.timestamp_ms)
    retained = set(protected)
    days = max(_DAYS, -(-snapshots_for_ms // _DAY_MS))
    for width, count in ((_HOUR_MS, _HOURS), (_DAY_MS, days)):
        last = {snapshot.timestamp_ms // width: snapshot.snapshot_id for snapshot in ordered}
        retained |= {snapshot_id for at, snapshot_id in last.items() if at > now_ms // width - count}
    read = [snapshot for snapshot in ordered if snapshot.snapshot_id in readers]
    retained |= {snapshot.snapshot_id for snapshot in read if snapshot.timestamp_ms > now_ms - _READ_MS}
    dropped = [snapshot.snapshot_id for snapshot in ordered[:-RECENT] if snapshot.snapshot_id not in retained]
    return dropped if len(dropped) >= _AT_ONCE else []
