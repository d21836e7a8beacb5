"""A table as of a moment: its newest snapshot then, with the schema and the hidden columns of that snapshot."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from headrace.errors import BadQueryError, QueryError
from headrace.iceberg.ledgers.build import KEY
from headrace.iceberg.snapshots.history import history_of, is_first, oldest_snapshot
from headrace.iceberg.snapshots.moments import Instant, Moment, SnapshotId, show_time

_LOG = logging.getLogger(__name__)


def resolve_snapshots(catalog: Catalog, names: Sequence[str], at: Moment | None) -> Mapping[str, int]:
    """Return the snapshot id by which to read each table; empty without a moment, when tables are read as they are.

    Raises a QueryError if a table has no snapshot at that moment, and a BadQueryError for a snapshot id and several tables.
    """
    if at is None:
        return {}
    if isinstance(at, SnapshotId) and len(names) != 1:
        tables = f"these {len(names)} tables: {', '.join(names)}" if names else "no table"
        raise BadQueryError(
            f"a snapshot id belongs to one table, and the query names {tables}",
            where="--at",
            next_step="Name one table, or give a time, which applies to every table.",
        )
    snapshots = {name: find_snapshot(catalog.load_table(name), at) for name in names}
    for name, snapshot in snapshots.items():
        _LOG.info("%s is read as of %s: snapshot %d", name, show_time(snapshot.timestamp_ms), snapshot.snapshot_id)
    return {name: snapshot.snapshot_id for name, snapshot in snapshots.items()}


def find_snapshot(table: Table, at: Moment) -> Snapshot:
    """Return the table's snapshot at a moment: the one with that id, or the newest one of its history then.

    Raises a QueryError that says how far back the table goes.
    """
    if isinstance(at, SnapshotId):
        snapshot = table.snapshot_by_id(at.value)
    else:
        snapshot = next((snapshot for snapshot in history_of(table) if snapshot.timestamp_ms <= at.at_ms), None)
    if snapshot is None:
        raise _missing(table, at)
    return snapshot


def as_of(table: Table, snapshot_id: int | None) -> Table:
    """Return the table with a snapshot as its current one, and the schema and build of that snapshot; None changes nothing."""
    if snapshot_id is None:
        return table
    snapshot = find_snapshot(table, SnapshotId(snapshot_id))
    update: dict[str, object] = {"current_snapshot_id": snapshot_id}
    if snapshot.schema_id is not None:
        update["current_schema_id"] = snapshot.schema_id
    pinned = Table(
        table.name(), table.metadata.model_copy(update=update), table.metadata_location, table.io, table.catalog, table.config
    )
    if KEY in table.properties:
        pinned.metadata = pinned.metadata.model_copy(update={"properties": _properties_then(pinned)})
    return pinned


def _properties_then(table: Table) -> dict[str, str]:
    """Return the table's properties with the build entry that its current snapshot has, which says which columns are hidden.

    The entry is that of the last build. If the snapshots that could have it are expired, it is the entry of the newest build.
    """
    others = {key: value for key, value in table.properties.items() if key != KEY}
    for snapshot in history_of(table):
        entry = snapshot.summary.additional_properties.get(KEY) if snapshot.summary else None
        if entry:
            return {**others, KEY: entry}
        if is_first(snapshot):
            return others  # no build had written to the table
    return dict(table.properties)


def _missing(table: Table, at: Moment) -> QueryError:
    """Return the error for a table that has no snapshot at a moment."""
    name, oldest = ".".join(table.name()), oldest_snapshot(table)
    if oldest is None:
        return QueryError(f"{name} has no snapshot yet", where="--at", next_step="Query it without --at.")
    since = show_time(oldest.timestamp_ms)
    if isinstance(at, Instant):
        if is_first(oldest):
            what = f"{name} did not exist at {at}: its first snapshot is of {since}"
        else:
            what = f"{name} can't be read as of {at}: its snapshots before {since} are expired"
        return QueryError(what, where="--at", next_step=f"Read it as of {since} or later.")
    what = f"{name} has no snapshot {at.value}"
    if not is_first(oldest):
        what = f"{what}, or it is expired"
    return QueryError(
        what, where="--at", next_step=f"Its oldest snapshot is {oldest.snapshot_id}, of {since}. A time works for every table."
    )
