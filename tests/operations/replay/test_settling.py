"""The quarantine gets the rows of a replay's settlement exactly once, and no other row changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pyarrow as pa
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.table import Table

from headrace.iceberg.catalog.tables import ensure_table, open_catalog, table_location
from headrace.iceberg.ledgers.replay import KEY, ReplayLedger, Settlement, Window
from headrace.iceberg.metadata.quarantine import QUARANTINE, QUARANTINE_COLUMNS, open_quarantine
from headrace.iceberg.metadata.quarantine_replay import flush_replayed, read_refused, write_refused
from headrace.operations.maintain.maintaining import MaintenanceContext, preview_table, shared_targets
from headrace.settings import load_settings
from headrace.spec import TableName

AT = datetime(2026, 1, 1, tzinfo=timezone.utc)
WINDOW = Window(AT, AT + timedelta(hours=2))


def rows(table: Table, *specs: tuple[str, int, int, str]) -> pa.Table:
    """Return rows: stream, offset (and hour), checkpoint, reason."""
    dicts = [
        {
            "stream": stream,
            "topic": "things",
            "partition": 0,
            "offset": offset,
            "timestamp": AT + timedelta(hours=offset),
            "reason": reason,
            "original_bytes": b"?",
            "checkpoint_id": checkpoint,
        }
        for stream, offset, checkpoint, reason in specs
    ]
    return pa.Table.from_pylist(dicts, schema=schema_to_pyarrow(table.schema()))


def held(table: Table) -> Sequence[tuple[str, int, str]]:
    return sorted((row["stream"], row["offset"], row["reason"]) for row in table.scan().to_arrow().to_pylist())


def test_flush_replayed_commits_a_settlement_once(tmp_path: Path) -> None:
    settings = load_settings(flags={}, environ={}, folder=tmp_path)
    catalog = open_catalog(settings)
    quarantine = open_quarantine(catalog, settings)
    quarantine.append(rows(quarantine, ("a", 0, 1, "old"), ("a", 1, 1, "old"), ("a", 5, 1, "late"), ("b", 0, 1, "other")))
    quarantine.append(rows(quarantine, ("a", 1, 3, "landed since")))
    scope = Settlement(2, WINDOW)
    assert read_refused(quarantine, "a", scope)["offset"].to_pylist() == [0, 1]

    folder = f"file://{tmp_path}/staged"
    files = write_refused(quarantine, rows(quarantine, ("a", 1, 1, "new")), folder=folder, name="r1")
    entry = ReplayLedger(1, "r1", settlement=replace(scope, files=files))
    assert ReplayLedger.from_json(entry.to_json()) == entry
    right = [("a", 1, "landed since"), ("a", 1, "new"), ("a", 5, "late"), ("b", 0, "other")]
    assert held(flush_replayed(catalog, quarantine, "a", entry)) == right
    assert not list((tmp_path / "staged").glob("*")), "its rows are the quarantine's now"
    assert held(flush_replayed(catalog, open_quarantine(catalog, settings), "a", entry)) == right
    nothing = ReplayLedger(2, "r2", settlement=Settlement(1, Window()))
    assert held(flush_replayed(catalog, quarantine, "a", nothing)) == [("a", 1, "landed since"), ("b", 0, "other")]


def test_maintenance_keeps_the_files_of_a_pending_settlement(tmp_path: Path) -> None:
    """A replay was killed after its commit: the quarantine does not refer to its files yet, for any length of time."""
    settings = replace(load_settings(flags={}, environ={}, folder=tmp_path), maintain_grace_minutes=0)
    catalog = open_catalog(settings)
    quarantine = open_quarantine(catalog, settings)
    quarantine.append(rows(quarantine, ("a", 0, 1, "old")))
    folder = f"{quarantine.location()}/output"
    named, nameless = (
        write_refused(quarantine, rows(quarantine, ("a", 0, 1, "new")), folder=folder, name=name) for name in ("r1", "r0")
    )
    entry = ReplayLedger(1, "r1", settlement=Settlement(2, Window(), named))
    location = table_location(settings, TableName("raw", "a"))
    ensure_table(
        catalog, TableName("raw", "a"), columns=QUARANTINE_COLUMNS, location=location, properties={KEY: entry.to_json()}
    )
    (target,) = (shared for shared in shared_targets(settings) if shared.name == QUARANTINE)
    preview = preview_table(MaintenanceContext(settings, catalog), None, target)
    assert preview is not None
    assert {uri for uri in preview.orphans.gone if uri.endswith(".parquet")} == set(nameless)
    assert held(flush_replayed(catalog, open_quarantine(catalog, settings), "a", entry)) == [("a", 0, "new")]
