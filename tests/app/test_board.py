"""The board of a live run: streams and tables."""

from __future__ import annotations

import io
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from headrace.app import board
from headrace.landing.landed import Batch, Landed
from headrace.sessions.building import Outcome


@pytest.mark.parametrize(
    ("seconds", "wanted"),
    [(-0.1, "0.0 s"), (1.23, "1.2 s"), (119, "119.0 s"), (150, "2 min"), (7_200, "2 h"), (200_000, "2 d")],
)
def test_describe_age_chooses_a_unit(seconds: float, wanted: str) -> None:
    assert board.describe_age(seconds) == wanted


def outcome_of(name: str, *, newest_change: float | None = None) -> Outcome:
    """Return the outcome of a table's build 7, which wrote five rows."""
    entry: Any = SimpleNamespace(build_id=7, expectations=(), largest_entity=None)
    built: Any = SimpleNamespace(entry=entry, rows=5, seconds=0.4)
    table: Any = SimpleNamespace(table=name, largest_entity=100)
    return Outcome(table, built=built, newest_change=newest_change)


def test_live_board_shows_freshness(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1_000.0
    monkeypatch.setattr(board, "time", SimpleNamespace(monotonic=lambda: now))
    console = Console(file=io.StringIO(), force_terminal=True, width=200)
    with board.live_board(console, title="one, live") as live:
        live.landed(Batch((Landed("one.events", 3, 10, 0),), 0.1, behind=0))
        live.built(outcome_of("marts.daily", newest_change=990.0))
        live.idle()
        console.file.truncate(0)
        now = 1_001.5
        live.idle()
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert "freshness" in shown
    assert "11.5 s" in shown, "the age of the newest change that the table has"


def test_live_board_tells_a_stream_from_a_table_of_the_same_name() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=200)
    with board.live_board(console, title="shop, live") as live:
        live.landed(Batch((Landed("shop.orders", 3, 10, 0),), 0.1, behind=0))
        console.file.truncate(0)
        live.built(outcome_of("shop.orders"))
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    rows = [[cell.strip() for cell in line.split("│")] for line in shown.splitlines() if "shop.orders" in line]
    assert ["stream shop.orders", "10"] in [row[1:3] for row in rows]
    assert ["shop.orders", "5"] in [row[1:3] for row in rows]


def test_lines_show_the_age_of_the_newest_change(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(board, "time", SimpleNamespace(monotonic=lambda: 1_001.5))
    console = Console(file=io.StringIO(), width=200)
    failed: Any = SimpleNamespace(on_failure="warn", failed=1)
    entry: Any = SimpleNamespace(build_id=7, expectations=(failed,), largest_entity=None, weights=None)
    table: Any = SimpleNamespace(table="marts.daily", largest_entity=100)
    with board.live_board(console, title="one, live") as live:
        for change in (990.0, None):
            built: Any = SimpleNamespace(entry=entry, rows=5, seconds=0.4)
            live.built(Outcome(table, built=built, newest_change=change))
    first, second = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert second == "marts.daily  build 7  5 rows  1 warning  0 quarantined  0.40 s"
    assert first == f"{second}  newest change landed 11.5 s ago"
