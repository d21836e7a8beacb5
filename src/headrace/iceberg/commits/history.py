"""How much of a table's history is kept, so that committing costs the same after a year as on the first day."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

RECENT = 50
_AT_ONCE = 50
_HOUR_MS = 3_600_000
_DAY_MS = 24 * _HOUR_MS
_KEPT = ((_HOUR_MS, 24), (_DAY_MS, 30))
_READ_MS = 7 * _DAY_MS
"""How long a snapshot stays because a reader names it: as long as maintenance keeps any, unless the settings say otherwise."""


class Dated(Protocol):
    """A snapshot, whichever library it comes from."""

    @property
    def snapshot_id(self) -> int: ...

    @property
    def timestamp_ms(self) -> int: ...


@dataclass(frozen=True)
class DatedSnapshot:
    snapshot_id: int
    timestamp_ms: int


def snapshots_to_drop(
    snapshots: Sequence[Dated], *, protected: Collection[int], readers: Collection[int] = (), now_ms: int
) -> list[int]:
    """Return the ids of snapshots to leave out of the history.

    Kept are the newest 50, for a day the last of every hour, for a month the last of every day, those in `protected` (branches
    and tags), and for a week those in `readers`, which tables that read this one have read up to. Nothing is dropped until
    fifty can be: most commits do nothing.
    """
    if len(snapshots) < RECENT + _AT_ONCE:
        return []
    ordered = sorted(snapshots, key=lambda snapshot: snapshot.timestamp_ms)
    kept = set(protected)
    for width, count in _KEPT:
        last = {snapshot.timestamp_ms // width: snapshot.snapshot_id for snapshot in ordered}
        kept |= {snapshot_id for at, snapshot_id in last.items() if at > now_ms // width - count}
    kept |= {each.snapshot_id for each in ordered if each.snapshot_id in readers and each.timestamp_ms > now_ms - _READ_MS}
    dropped = [snapshot.snapshot_id for snapshot in ordered[:-RECENT] if snapshot.snapshot_id not in kept]
    return dropped if len(dropped) >= _AT_ONCE else []
