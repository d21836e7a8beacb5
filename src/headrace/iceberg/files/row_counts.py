"""How many rows a snapshot has, by its own summary."""

from __future__ import annotations

from pyiceberg.table.snapshots import Snapshot


def rows_after(snapshot: Snapshot) -> int:
    """Return how many rows the table has after a snapshot: those in its data files, less those that are deleted there."""
    summary = snapshot.summary.additional_properties if snapshot.summary else {}
    return int(summary.get("total-records", 0)) - int(summary.get("total-position-deletes", 0))
