"""What maintenance would do to tables and what it did, on a terminal and as JSON."""

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
                    "table": str(each.name),
                    "before": asdict(each.before),
                    "after": asdict(each.after),
                    "files_deleted": len(each.orphans.gone),
                    "files_waiting": len(each.orphans.waiting),
                    "gave_way": each.gave_way,
                    "seconds": round(each.seconds, 2),
                }
                for each in done
            ]
        )
        return
    if not done:
        console.print("there are no tables yet", highlight=False)
        return
    table = _table("table", "files", "deletes", "MB", "snapshots", "manifests", "deleted on disk", "waiting", "seconds")
    for each in done:
        a, b = each.before, each.after
        table.add_row(
            str(each.name),
            _change(a.files, b.files),
            _change(a.delete_files, b.delete_files),
            _change(_mb(a.bytes), _mb(b.bytes)),
            _change(a.snapshots, b.snapshots),
            _change(a.manifests, b.manifests),
            f"{len(each.orphans.gone):,}",
            f"{len(each.orphans.waiting):,}",
            f"{each.seconds:.1f}",
        )
    console.print(table)
    for each in done:
        if each.gave_way:
            console.print(f"{each.name}: a build was faster, so some of it is left for the next time", highlight=False)
    if any(each.orphans.waiting for each in done):
        console.print(_WAITING, highlight=False, soft_wrap=True)


def show_foreseen(console: Console, found: Sequence[MaintenancePreview], *, as_json: bool) -> None:
    """Print what maintenance would do to each table."""
    if as_json:
        print_json(
            [
                {
                    "table": str(each.name),
                    **asdict(each.size),
                    "files_to_compact": each.files_to_compact,
                    "snapshots_to_expire": each.snapshots_to_expire,
                    "rewrites_manifests": each.rewrites_manifests,
                    "files_to_delete": len(each.orphans.gone),
                    "files_waiting": len(each.orphans.waiting),
                }
                for each in found
            ]
        )
        return
    if not found:
        console.print("there are no tables yet", highlight=False)
        return
    table = _table(
        *("table", "files", "to compact", "MB", "snapshots", "to expire", "manifests", "to rewrite", "to delete", "waiting")
    )
    for each in found:
        size = each.size
        table.add_row(
            str(each.name),
            f"{size.files:,}",
            f"{each.files_to_compact:,}",
            _mb(size.bytes),
            f"{size.snapshots:,}",
            f"{each.snapshots_to_expire:,}",
            f"{size.manifests:,}",
            "yes" if each.rewrites_manifests else "",
            f"{len(each.orphans.gone):,}",
            f"{len(each.orphans.waiting):,}",
        )
    console.print(table)
    if any(each.orphans.waiting for each in found):
        console.print(_WAITING, highlight=False, soft_wrap=True)


_WAITING = (
    "Waiting: files that nothing refers to, and that may be in flight or still be read. They go when that was so for "
    "maintain.grace_minutes."
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
