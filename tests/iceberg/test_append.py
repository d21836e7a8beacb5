"""An append is committed exactly once, also after conflicts and lost responses."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException
from pyiceberg.table import Table

from headrace.backoff import Backoff
from headrace.errors import TakenOverError, UnavailableError
from headrace.iceberg.commits import commit as commit_module
from headrace.iceberg.commits.append import append_checkpoint
from headrace.iceberg.ledgers.landing import Ledger, read_ledger
from tests.iceberg.tables import add_files, numbers, roll_back, write_files


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit_module, "COMMITS", Backoff(0.0002, attempts=8))


def commit(catalog: Catalog, table: Table, *, rows: int = 3, first: int = 0, writer: str = "me") -> Table:
    planned = read_ledger(table)
    new = Ledger(planned.checkpoint_id + 1, {0: first + rows}, writer)
    return append_checkpoint(catalog, table, files=write_files(table, rows=rows, first=first), planned=planned, new=new)


class Faulty:
    """A catalog whose commits fail as the steps say, before or after they are done."""

    def __init__(self, catalog: Catalog, steps: Iterator[str], error: Callable[[], Exception]) -> None:
        self._catalog, self._steps, self._error = catalog, steps, error
        self.commits = 0

    def commit_table(self, *arguments: Any) -> Any:
        self.commits += 1
        step = next(self._steps, "works")
        if step == "fails before":
            raise self._error()
        answer = self._catalog.commit_table(*arguments)
        if step == "fails after":
            raise self._error()
        return answer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._catalog, name)


ERRORS = [
    lambda: CommitStateUnknownException("no answer"),
    lambda: ConnectionError("reset"),
    lambda: CommitFailedException("no"),
]


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize(
    ("steps", "commits"),
    [
        (["fails after"], 1),
        (["fails before"], 2),
        (["fails before", "fails after"], 2),
        (["fails before"] * 6, 7),
    ],
)
def test_append_commits_once_after_a_lost_response(
    catalog: Catalog, table: Table, steps: list[str], commits: int, error: Callable[[], Exception]
) -> None:
    faulty = Faulty(catalog, iter(steps), error)
    committed = commit(faulty, table)  # type: ignore[arg-type]
    assert numbers(catalog, table) == [0, 1, 2]
    assert (read_ledger(committed).writer, read_ledger(committed).checkpoint_id) == ("me", 1)
    assert faulty.commits == commits
    assert len(catalog.load_table(table.name()).snapshots()) == 1


def test_append_raises_unavailable_during_a_catalog_outage(catalog: Catalog, table: Table) -> None:
    faulty = Faulty(catalog, iter(["fails before"] * 100), lambda: ConnectionError("refused"))
    with pytest.raises(UnavailableError, match="refused"):
        commit(faulty, table)  # type: ignore[arg-type]
    assert numbers(catalog, table) == []


def test_append_retries_after_a_foreign_append(catalog: Catalog, table: Table) -> None:
    table = commit(catalog, table, writer="first")
    stale = catalog.load_table(table.name())
    add_files(table)
    committed = commit(catalog, stale, first=3, writer="second")
    assert numbers(catalog, table) == [-1, -1, 0, 1, 2, 3, 4, 5]
    assert (read_ledger(committed).writer, read_ledger(committed).checkpoint_id) == ("second", 2)
    assert read_ledger(committed).snapshot_id == committed.metadata.current_snapshot_id


def test_append_raises_taken_over_after_another_landing(catalog: Catalog, table: Table) -> None:
    stale = catalog.load_table(table.name())
    commit(catalog, table, writer="other")
    with pytest.raises(TakenOverError, match="checkpoint 1"):
        commit(catalog, stale, writer="me")
    assert numbers(catalog, table) == [0, 1, 2]
    assert read_ledger(catalog.load_table(table.name())).writer == "other"


def test_append_raises_taken_over_after_a_long_suspension(catalog: Catalog, table: Table) -> None:
    table = commit(catalog, table, writer="old")
    stale = catalog.load_table(table.name())
    for number in range(1, 4):
        table = add_files(commit(catalog, table, first=3 * number, writer=f"new-{number}"))
    before = numbers(catalog, table)
    with pytest.raises(TakenOverError):
        commit(catalog, stale, first=3, writer="old")
    assert numbers(catalog, table) == before


def test_append_raises_taken_over_after_a_rollback(catalog: Catalog, table: Table) -> None:
    """Its batch starts where the table no longer ends: committed, it would leave a hole."""
    table = commit(catalog, table, writer="first")
    target = table.metadata.current_snapshot_id
    assert target is not None
    table = commit(catalog, table, first=3, writer="second")
    stale = catalog.load_table(table.name())
    roll_back(catalog, table, target)
    with pytest.raises(TakenOverError, match="rolled back"):
        commit(catalog, stale, first=6, writer="third")
    assert numbers(catalog, table) == [0, 1, 2]


def test_append_without_rows_updates_the_ledger(catalog: Catalog, table: Table) -> None:
    new = Ledger(1, {0: 7}, "me")
    committed = append_checkpoint(catalog, table, files=[], planned=Ledger(), new=new)
    assert dict(read_ledger(catalog.load_table(committed.name())).offsets) == {0: 7}
    again = append_checkpoint(catalog, committed, files=[], planned=read_ledger(committed), new=Ledger(2, {0: 9}, "me too"))
    assert dict(read_ledger(catalog.load_table(again.name())).offsets) == {0: 9}
