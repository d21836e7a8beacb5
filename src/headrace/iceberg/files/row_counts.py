"""The row count in a snapshot's summary."""

from __future__ import annotations

from pyiceberg.table.snapshots import Snapshot


def rows_after(snapshot: Snapshot) -> int:
    """Return the table's row count after a snapshot: the rows in its data files, minus the position deletes."""
    summary = snapshot.summary.additional_properties if snapshot.summary else {}
    return int(summary.get("total-records", 0)) - int(summary.get("total-position-deletes", 0))
