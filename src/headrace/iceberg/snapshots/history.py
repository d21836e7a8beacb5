"""The snapshots that were current in a table, and how far back they go."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

_FIRST = 1
"""The sequence number of a table's first snapshot."""


def history_of(table: Table) -> Iterator[Snapshot]:
    """Yield the current snapshot and those before it, the newest first, without snapshots that were rolled back.

    Parents lead back to the first gap, because PyIceberg forgets the parent of a snapshot when it removes the parent. Past a
    gap, the snapshot log says which snapshots were current, and which of them a rollback undid. Iceberg's Java library clears
    the log at a gap: snapshots that are older than the log count as current in their time. So does a rolled-back snapshot if
    both the snapshot of the rollback and the one after it were removed.
    """
    by_id = {snapshot.snapshot_id: snapshot for snapshot in table.metadata.snapshots}
    by_number = {_number(snapshot): snapshot for snapshot in by_id.values()}
    older: Iterator[Snapshot] | None = None
    snapshot = table.current_snapshot()
    while snapshot is not None:
        yield snapshot
        parent = by_id.get(snapshot.parent_snapshot_id or 0)
        if parent is None:
            older = iter(_past_current(table)) if older is None else older
            undone = _undone_before(by_number.get(_number(snapshot) - 1), by_id)
            candidates = (candidate for candidate in older if _number(candidate) < _number(snapshot))
            parent = next((candidate for candidate in candidates if candidate.snapshot_id not in undone), None)
        snapshot = parent


def is_first(snapshot: Snapshot) -> bool:
    """Return whether a snapshot is the first one of its table: nothing before it was expired."""
    return _number(snapshot) <= _FIRST


def oldest_snapshot(table: Table) -> Snapshot | None:
    """Return the oldest snapshot of the table's history; None without snapshots."""
    oldest = None
    for snapshot in history_of(table):
        oldest = snapshot
    return oldest


def _undone_before(before: Snapshot | None, by_id: Mapping[int, Snapshot]) -> frozenset[int]:
    """Return the snapshots that a rollback undid just before a snapshot whose parent was removed.

    Numbers have no gaps: if `before`, the snapshot of the number before, was not removed, it is not the parent, so it was
    rolled back.
    """
    undone = set()
    while before is not None:
        undone.add(before.snapshot_id)
        before = by_id.get(before.parent_snapshot_id or 0)
    return frozenset(undone)


def _past_current(table: Table) -> list[Snapshot]:
    """Return the snapshots that were current, as far as the log tells, the newest first."""
    log = table.metadata.snapshot_log
    line: list[int] = []
    for entry in log:
        if entry.snapshot_id in line:  # a rollback
            del line[line.index(entry.snapshot_id) + 1 :]
        else:
            line.append(entry.snapshot_id)
    begin = log[0].timestamp_ms if log else None
    logged = frozenset(line)
    candidates = (
        snapshot
        for snapshot in table.metadata.snapshots
        if snapshot.snapshot_id in logged or begin is None or snapshot.timestamp_ms < begin
    )
    return sorted(candidates, key=_number, reverse=True)


def _number(snapshot: Snapshot) -> int:
    return snapshot.sequence_number or 0
