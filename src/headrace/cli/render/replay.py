"""What a replay did, or would do, on a terminal and as JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from headrace.serving.values import print_json
from headrace.terminal import data_text

if TYPE_CHECKING:
    from headrace.operations.replay.replaying import Replayed

_FEW = 10
_CLASSES = {
    "unchanged": "unchanged",
    "replaced": "replaced",
    "new": "new",
    "recovered": "from quarantine",
    "still_refused": "still refused",
    "refused": "newly refused",
    "kept": "kept",
}


def show_replayed(console: Console, done: Replayed, *, as_json: bool) -> None:
    if as_json:
        print_json(_as_json(done))
        return
    if done.streams:
        table = Table("table")
        for column in ("read", *_CLASSES.values()):
            table.add_column(column, justify="right")
        for one in done.streams:
            counts = asdict(one.counts)
            table.add_row(data_text(str(one.table)), f"{one.read:,}", *(f"{counts[name]:,}" for name in _CLASSES))
        console.print(table)
    else:
        console.print("no message was read again", highlight=False)
    for one in done.streams:
        for reason, count in list(one.reasons.items())[:_FEW]:
            console.print(f"{one.label}: {count:,} refused: {reason}", highlight=False, markup=False, soft_wrap=True)
        if one.counts.kept:
            told = "rows of messages that can't be read now stay as they are"
            console.print(f"{one.label}: {one.counts.kept:,} {told}", highlight=False, markup=False, soft_wrap=True)
    names = ", ".join(str(each) for each in done.rebuilds)
    if done.dry_run:
        would = f"these tables would be written anew: {names}" if names else "no table would be written anew"
        console.print(f"No row was changed; {would}", highlight=False, markup=False, soft_wrap=True)
    elif not names:
        console.print("nothing has changed for the tables that are made of it", highlight=False)


def _as_json(done: Replayed) -> dict[str, object]:
    return {
        "dry_run": done.dry_run,
        "streams": [
            {"stream": one.label, "table": str(one.table), "read": one.read, **asdict(one.counts), "reasons": dict(one.reasons)}
            for one in done.streams
        ],
        "rebuilds": [str(each) for each in done.rebuilds],
        "built": [
            {"table": str(each.table.table), "rows": each.built.rows, "error": None}
            if each.built
            else {"table": str(each.table.table), "rows": None, "error": each.error.what if each.error else None}
            for each in done.outcomes
        ],
    }
