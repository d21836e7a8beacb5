"""The row counts in a snapshot's summary."""

from __future__ import annotations

from pyiceberg.table.snapshots import Snapshot


def rows_after(snapshot: Snapshot) -> int:
    """Return the table's row count after a snapshot: the rows in its data files, minus the position deletes."""
    summary = snapshot.summary.additional_properties if snapshot.summary else {}
    return int(summary.get("total-records", 0)) - int(summary.get("total-position-deletes", 0))


def rows_written(snapshot: Snapshot) -> int:
    """Return the number of rows that a commit wrote."""
    return int(snapshot.summary.additional_properties.get("added-records", 0)) if snapshot.summary else 0
