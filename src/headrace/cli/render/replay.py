"""Render what a replay did, or would do, for a terminal and as JSON."""

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
        for stream in done.streams:
            counts = asdict(stream.counts)
            table.add_row(data_text(str(stream.table)), f"{stream.read:,}", *(f"{counts[name]:,}" for name in _CLASSES))
        console.print(table)
    else:
        console.print(f"No message {'would be' if done.dry_run else 'was'} replayed", highlight=False)
    for stream in done.streams:
        for reason, count in list(stream.reasons.items())[:_FEW]:
            console.print(f"{stream.label}: {count:,} refused: {reason}", highlight=False, markup=False, soft_wrap=True)
        if stream.counts.kept:
            note = "rows are kept, because their messages can't be read now"
            console.print(f"{stream.label}: {stream.counts.kept:,} {note}", highlight=False, markup=False, soft_wrap=True)
    names = ", ".join(str(rebuilt) for rebuilt in done.rebuilds)
    if done.dry_run:
        would = f"these tables would be rebuilt: {names}" if names else "no table would be rebuilt"
        console.print(f"No row was changed; {would}", highlight=False, markup=False, soft_wrap=True)
    elif not names:
        console.print("No downstream table has to be rebuilt", highlight=False)


def _as_json(done: Replayed) -> dict[str, object]:
    return {
        "dry_run": done.dry_run,
        "streams": [
            {
                "stream": stream.label,
                "table": str(stream.table),
                "read": stream.read,
                **asdict(stream.counts),
                "reasons": dict(stream.reasons),
            }
            for stream in done.streams
        ],
        "rebuilds": [str(rebuilt) for rebuilt in done.rebuilds],
        "built": [
            {"table": str(outcome.table.table), "rows": outcome.built.rows, "error": None}
            if outcome.built
            else {"table": str(outcome.table.table), "rows": None, "error": outcome.error.what if outcome.error else None}
            for outcome in done.outcomes
        ],
    }
