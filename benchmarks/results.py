"""Results: a table for people, JSON for everyone else, and which bars were met."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from importlib.metadata import version
from pathlib import Path
from typing import Literal

from rich.console import Console
from rich.table import Table

_FOLDER = Path(__file__).parent / "results"


@dataclass(frozen=True)
class Bar:
    """What must be shown, and what was."""

    name: str
    wanted: float
    measured: float
    kind: Literal["at least", "at most"]

    @property
    def met(self) -> bool:
        return self.measured >= self.wanted if self.kind == "at least" else self.measured <= self.wanted


def at_least(wanted: float, measured: float, *, name: str) -> Bar:
    return Bar(name, wanted, round(measured, 2), "at least")


def at_most(wanted: float, measured: float, *, name: str) -> Bar:
    return Bar(name, wanted, round(measured, 2), "at most")


def save_results(name: str, measured: Sequence[Mapping[str, object]], bars: Sequence[Bar], *, now: datetime) -> Path:
    """Return the file that the results are in. It says what ran, and nothing about whose machine it was."""
    document = {
        "date": now.astimezone(timezone.utc).strftime("%Y-%m-%d"),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "system": f"{platform.system()} {platform.machine()}",
        "versions": {
            "python": platform.python_version(),
            **{package: version(package) for package in ("headrace", "pyspark", "pyarrow", "pyiceberg", "confluent-kafka")},
        },
        "measured": list(measured),
        "bars": [{**asdict(bar), "met": bar.met} for bar in bars],
    }
    _FOLDER.mkdir(exist_ok=True)
    path = _FOLDER / f"{name}.json"
    path.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    return path


def show_table(console: Console, title: str, rows: Sequence[Mapping[str, object]]) -> None:
    """Print the rows; lists, which are details, stay in the file."""
    table = Table(title=title, title_justify="left")
    values = {name: value for row in reversed(rows) for name, value in row.items() if not isinstance(value, list)}
    names = dict.fromkeys(name for row in rows for name in row if name in values)
    for name in names:
        table.add_column(name.replace("_", " "), justify="left" if isinstance(values[name], str) else "right")
    for row in rows:
        table.add_row(*(_text(row.get(name, "")) for name in names))
    console.print(table)


def show_bars(console: Console, bars: Sequence[Bar]) -> None:
    table = Table(title="Bars", title_justify="left")
    for name in ("what", "wanted", "measured", ""):
        table.add_column(name, justify="left" if name == "what" else "right")
    for bar in bars:
        table.add_row(bar.name, f"{bar.kind} {bar.wanted:g}", f"{bar.measured:g}", "[green]met" if bar.met else "[red]missed")
    console.print(table)


def _text(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.0f}" if value >= 1000 else f"{value:,.2f}"
    return f"{value:,}" if isinstance(value, int) else str(value)
