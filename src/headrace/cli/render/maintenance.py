"""Render what maintenance would do and what it did, for a terminal and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from headrace.serving.values import print_json

if TYPE_CHECKING:
    from headrace.operations.maintain.maintaining import Maintained, MaintenancePreview


def show_maintained(console: Console, done: Sequence[Maintained], *, as_json: bool) -> None:
    """Print each table's files, size, snapshots and manifests, before and after."""
    if as_json:
        print_json(
            [
                {
                    "table": str(table.name),
                    "before": asdict(table.before),
                    "after": asdict(table.after),
                    "files_deleted": len(table.orphans.gone),
                    "files_waiting": len(table.orphans.waiting),
                    "gave_way": table.gave_way,
                    "seconds": round(table.seconds, 2),
                }
                for table in done
            ]
        )
        return
    if not done:
        console.print("there are no tables yet", highlight=False)
        return
    table = _table("table", "files", "deletes", "MB", "snapshots", "manifests", "deleted on disk", "waiting", "seconds")
    for maintained in done:
        a, b = maintained.before, maintained.after
        table.add_row(
            str(maintained.name),
            _change(a.files, b.files),
            _change(a.delete_files, b.delete_files),
            _change(_mb(a.bytes), _mb(b.bytes)),
            _change(a.snapshots, b.snapshots),
            _change(a.manifests, b.manifests),
            f"{len(maintained.orphans.gone):,}",
            f"{len(maintained.orphans.waiting):,}",
            f"{maintained.seconds:.1f}",
        )
    console.print(table)
    for maintained in done:
        if maintained.gave_way:
            console.print(f"{maintained.name}: yielded to a concurrent build; the rest is done next time", highlight=False)
    if any(maintained.orphans.waiting for maintained in done):
        console.print(_WAITING, highlight=False, soft_wrap=True)


def show_foreseen(console: Console, planned: Sequence[MaintenancePreview], *, as_json: bool) -> None:
    """Print what maintenance would do to each table."""
    if as_json:
        print_json(
            [
                {
                    "table": str(table.name),
                    **asdict(table.size),
                    "files_to_compact": table.files_to_compact,
                    "snapshots_to_expire": table.snapshots_to_expire,
                    "rewrites_manifests": table.rewrites_manifests,
                    "files_to_delete": len(table.orphans.gone),
                    "files_waiting": len(table.orphans.waiting),
                }
                for table in planned
            ]
        )
        return
    if not planned:
        console.print("there are no tables yet", highlight=False)
        return
    table = _table(
        *("table", "files", "to compact", "MB", "snapshots", "to expire", "manifests", "to rewrite", "to delete", "waiting")
    )
    for plan in planned:
        size = plan.size
        table.add_row(
            str(plan.name),
            f"{size.files:,}",
            f"{plan.files_to_compact:,}",
            _mb(size.bytes),
            f"{size.snapshots:,}",
            f"{plan.snapshots_to_expire:,}",
            f"{size.manifests:,}",
            "yes" if plan.rewrites_manifests else "",
            f"{len(plan.orphans.gone):,}",
            f"{len(plan.orphans.waiting):,}",
        )
    console.print(table)
    if any(plan.orphans.waiting for plan in planned):
        console.print(_WAITING, highlight=False, soft_wrap=True)


_WAITING = (
    "Waiting: unreferenced files that a write or a query may still use. Maintenance deletes them once they have been "
    "unreferenced for maintain.grace_minutes."
)


def _table(first: str, *others: str) -> Table:
    table = Table(first)
    for name in others:
        table.add_column(name, justify="right")
    return table


def _change(before: int | str, after: int | str) -> str:
    if before == after:
        return f"{before:,}" if isinstance(before, int) else before
    return f"{before} → {after}" if isinstance(before, str) else f"{before:,} → {after:,}"


def _mb(size: int) -> str:
    return f"{size / 1024 / 1024:,.1f}"
