"""Render explained plans for a terminal and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from headrace.plurals import count_of

if TYPE_CHECKING:
    from headrace.build.explain import Explanation, Where
    from headrace.build.reads import Read

_DOES = {"nothing": "nothing to build", "increment": "builds what changed", "refresh": "rebuilds all rows"}
_ENGINES = {"memory": "in memory", "scans": "on Spark's scans"}


def show_explained(console: Console, explained: Sequence[Explanation]) -> None:
    """Print a paragraph for each table: what it does, where it runs, what it reads and what is cached."""
    for explanation in explained:
        plan = explanation.plan
        console.print(f"\n{plan.table.table}", style="bold", highlight=False, markup=False)
        lines = Table.grid(padding=(0, 2))
        lines.add_column(style="dim", no_wrap=True)
        lines.add_column(overflow="fold")
        lines.add_row(plan.table.kind, explanation.strategy)
        lines.add_row("now", f"{_DOES[plan.action]}: {'; '.join(plan.why)}")
        lines.add_row("small builds", _where(explanation.small_builds))
        if explanation.next_build and explanation.next_build != explanation.small_builds:
            lines.add_row("this build", _where(explanation.next_build))
        for number, read in enumerate(explanation.reads):
            lines.add_row("reads" if number == 0 else "", describe_read(read))
        if explanation.stored.total:
            lines.add_row("cached", f"{_mb(explanation.stored.rows)} of rows, {_mb(explanation.stored.indexes)} of indexes")
        console.print(lines, highlight=False, markup=False)


def describe_read(read: Read) -> str:
    """Return one line about a read: its table, how many rows changed, and how the build finds them."""
    name = "its own rows" if read.role == "itself" else f"{read.table}{', looked up' if read.role == 'lookup' else ''}"
    parts = []
    if read.built_first:
        parts.append(f"what this build changes of its {count_of(read.rows, 'row')}")
    elif read.changed is not None:
        changed = f"about {read.changed:,}" if read.changed else "none"
        parts.append(f"{changed} of {count_of(read.rows, 'row')} changed")
    if read.columns:
        parts.append(f"by {', '.join(read.columns)} = {read.values}")
    elif read.whole:
        parts.append(f"all rows, because {read.whole}")
    if read.changed is None:
        parts.append(f"{count_of(read.rows, 'row')} in total")
    return f"{name}: {'; '.join(parts)}"


def explanation_as_json(explained: Explanation) -> dict[str, object]:
    """Return the value of `explained` in `plan --explain --json`."""
    return {
        "strategy": explained.strategy,
        "small_builds": _where_as_json(explained.small_builds),
        "next_build": _where_as_json(explained.next_build) if explained.next_build else None,
        "changed_rows": explained.changed,
        "access_paths": [
            {
                "table": str(read.table),
                "role": read.role,
                "rows": read.rows,
                "changed_rows": read.changed,
                "built_first": read.built_first,
                "columns": list(read.columns),
                "values": read.values or None,
                "whole": read.whole or None,
            }
            for read in explained.reads
        ],
        "cached": {"row_bytes": explained.stored.rows, "index_bytes": explained.stored.indexes},
    }


def _where(where: Where) -> str:
    return f"{_ENGINES[where.engine]}: {where.why}"


def _where_as_json(where: Where) -> dict[str, str]:
    return {"in": where.engine, "why": where.why}


def _mb(size: int) -> str:
    return f"{size / 1_000_000:,.1f} MB"
