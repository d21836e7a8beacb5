"""The order in which one build starts tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.errors import BuildError
from headrace.sessions import building
from headrace.sessions.building import Outcome

GRAPH = {
    "alone": [],
    "lookup": [],
    "cleaned": [],
    "other": [],
    "joined": ["cleaned", "lookup"],
    "daily": ["joined"],
}


def starts(graph: Mapping[str, Sequence[str]], monkeypatch: pytest.MonkeyPatch, *, fails: str | None = None) -> list[str]:
    """Return the names of tables in the order in which a build starts them, one at a time."""
    tables = tuple(SimpleNamespace(table=name, inputs=("raw", *inputs)) for name, inputs in graph.items())
    lake: Any = SimpleNamespace(pipeline=SimpleNamespace(tables=tables))
    started: list[str] = []

    def build_one(lake: Any, table: Any, *, full_refresh: bool) -> Outcome:
        started.append(table.table)
        return Outcome(table, error=BuildError("it fails", where=table.table) if table.table == fails else None)

    monkeypatch.setattr(building, "_AT_ONCE", 1)
    monkeypatch.setattr(building, "build_one", build_one)
    monkeypatch.setattr(building, "mirror", lambda lake, outcomes: None)
    outcomes = building.build(lake)
    assert [str(outcome.table.table) for outcome in outcomes] == list(graph)
    return started


def test_tables_with_the_longest_chain_downstream_are_built_first(monkeypatch: pytest.MonkeyPatch) -> None:
    assert starts(GRAPH, monkeypatch) == ["lookup", "cleaned", "joined", "alone", "other", "daily"]


def test_failed_table_blocks_only_its_chain(monkeypatch: pytest.MonkeyPatch) -> None:
    assert starts(GRAPH, monkeypatch, fails="cleaned") == ["lookup", "cleaned", "alone", "other"]
