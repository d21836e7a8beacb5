"""A small build is committed once or not at all, also with concurrent commits and catalog errors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog, MetastoreCatalog
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException
from pyiceberg.table import Table

from headrace.backoff import Backoff
from headrace.errors import CompactedError, TakenOverError, UnavailableError
from headrace.iceberg.catalog.tables import open_catalog, table_location
from headrace.iceberg.commits import commit as commit_module
from headrace.iceberg.commits.row_delta import RowDelta
from headrace.iceberg.commits.small_build_commit import commit_small_build
from headrace.iceberg.deletes.position_deletes import own_deletes
from headrace.iceberg.files.staged_rows import stage_rows
from headrace.iceberg.ledgers.build import KEY, BuildLedger, InputState, read_build
from headrace.settings import Settings
from tests.iceberg.delta_table import (
    NAME,
    START,
    Row,
    as_arrow,
    as_rows,
    commit,
    create_table,
    delete_positions,
    next_entry,
    tasks_of,
)
from tests.iceberg.tables import roll_back

ROWS: list[Row] = [(number, START, "a") for number in range(6)]


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit_module, "COMMITS", Backoff(0.0002, attempts=8))


@pytest.fixture
def catalog(lake_settings: Settings) -> Catalog:
    """A catalog of each type that decides about commits in its own way."""
    return open_catalog(lake_settings)


@pytest.fixture
def location(lake_settings: Settings) -> str:
    return table_location(lake_settings, NAME)


@pytest.fixture(params=[False, True], ids=["unpartitioned", "by day"])
def built(catalog: Catalog, location: str, request: pytest.FixtureRequest) -> Table:
    """A table with ids 0, 1, 2 in one data file and 3, 4, 5 in another."""
    table = create_table(catalog, location, by_day=request.param)
    commit(catalog, RowDelta(added=stage_rows(table, [as_arrow(ROWS[:3]), as_arrow(ROWS[3:])])))
    return catalog.load_table(str(NAME))


def ids(catalog: Catalog) -> list[int]:
    return [row[0] for row in as_rows(catalog.load_table(str(NAME)).scan().to_arrow())]


def added(table: Table, *numbers: int) -> list[Any]:
    return stage_rows(table, [as_arrow([(number, START, "new") for number in numbers])])


def file_with(table: Table, number: int) -> Any:
    return next(task for task in tasks_of(table) if task.file.lower_bounds[1] == number.to_bytes(8, "little"))


def replace_file(catalog: Catalog, number: int) -> None:
    """Replace the data file that starts with an id by one of the same rows, as a compaction does, which knows no ledger."""
    table = catalog.load_table(str(NAME))
    task = file_with(table, number)
    rows = [row for row in as_rows(table.scan().to_arrow()) if number <= row[0] < number + 3]
    with table.transaction() as transaction, transaction.update_snapshot().overwrite() as update:
        update.delete_data_file(task.file)
        for file in stage_rows(table, [as_arrow(rows)]):
            update.append_data_file(file)


def delete_elsewhere(catalog: Catalog, number: int) -> None:
    """Delete the first row of a data file, as an engine does which knows no ledger."""
    table = catalog.load_table(str(NAME))
    entry = read_build(table)
    commit_small_build(
        catalog, NAME, delta=delete_positions(table, file_with(table, number), [0]), planned=entry, new=next_entry(entry)
    )
    catalog.load_table(str(NAME)).transaction().set_properties({KEY: entry.to_json()}).commit_transaction()


def delta_deleting(table: Table) -> RowDelta:
    return delete_positions(table, file_with(table, 0), [1], added=added(table, 10))


def delta_removing(table: Table) -> RowDelta:
    task = file_with(table, 0)
    return RowDelta(
        added=added(table, 0, 2, 10),
        removed=[task.file],
        outdated=own_deletes([task]),
        snapshot_id=table.metadata.current_snapshot_id,
    )


DELTAS = pytest.mark.parametrize("make", [delta_deleting, delta_removing])


def assert_refused(catalog: Catalog, delta: RowDelta, planned: BuildLedger, error: type[Exception]) -> None:
    """Commit a delta that must raise `error` and change nothing."""
    before = catalog.load_table(str(NAME))
    with pytest.raises(error):
        commit_small_build(catalog, NAME, delta=delta, planned=planned, new=next_entry(planned))
    after = catalog.load_table(str(NAME))
    assert after.metadata_location == before.metadata_location


@DELTAS
def test_small_build_fails_after_compaction_of_its_files(
    catalog: Catalog, built: Table, make: Callable[[Table], RowDelta]
) -> None:
    delta, planned = make(built), read_build(built)
    replace_file(catalog, 0)
    assert_refused(catalog, delta, planned, CompactedError)
    assert ids(catalog) == [0, 1, 2, 3, 4, 5]


@DELTAS
def test_small_build_fails_after_new_deletes_in_its_files(
    catalog: Catalog, built: Table, make: Callable[[Table], RowDelta]
) -> None:
    delta, planned = make(built), read_build(built)
    delete_elsewhere(catalog, 0)
    assert_refused(catalog, delta, planned, CompactedError)
    assert ids(catalog) == [1, 2, 3, 4, 5]


@DELTAS
def test_small_build_fails_after_replaced_deletes_of_its_files(
    catalog: Catalog, built: Table, make: Callable[[Table], RowDelta]
) -> None:
    delete_elsewhere(catalog, 0)
    table = catalog.load_table(str(NAME))
    delta, planned = make(table), read_build(table)
    entry = read_build(table)
    commit_small_build(
        catalog, NAME, delta=delete_positions(table, file_with(table, 0), [2]), planned=entry, new=next_entry(entry)
    )
    catalog.load_table(str(NAME)).transaction().set_properties({KEY: planned.to_json()}).commit_transaction()
    assert_refused(catalog, delta, planned, CompactedError)


@DELTAS
@pytest.mark.parametrize("other", ["append", "compaction", "delete"])
def test_small_build_succeeds_after_changes_of_other_files(
    catalog: Catalog, built: Table, make: Callable[[Table], RowDelta], other: str
) -> None:
    delta, planned = make(built), read_build(built)
    if other == "append":
        catalog.load_table(str(NAME)).append(as_arrow([(20, START, "b")]).cast(built.schema().as_arrow()))
    elif other == "compaction":
        replace_file(catalog, 3)
    else:
        delete_elsewhere(catalog, 3)
    entry = commit_small_build(catalog, NAME, delta=delta, planned=planned, new=next_entry(planned))
    wanted = {"append": [0, 2, 3, 4, 5, 10, 20], "compaction": [0, 2, 3, 4, 5, 10], "delete": [0, 2, 4, 5, 10]}
    assert ids(catalog) == wanted[other]
    assert read_build(catalog.load_table(str(NAME))) == entry


def test_small_build_fails_if_its_snapshot_is_expired(catalog: Catalog, built: Table) -> None:
    delta, planned = replace(delta_deleting(built), snapshot_id=1), read_build(built)
    assert_refused(catalog, delta, planned, CompactedError)


def test_small_build_fails_if_a_file_is_in_no_manifest(catalog: Catalog, built: Table) -> None:
    delta = RowDelta(removed=added(built, 9), snapshot_id=built.metadata.current_snapshot_id)
    assert_refused(catalog, delta, read_build(built), CompactedError)


@DELTAS
@pytest.mark.parametrize("with_rows", [True, False])
def test_small_build_fails_after_another_build(
    catalog: Catalog, built: Table, make: Callable[[Table], RowDelta], with_rows: bool
) -> None:
    delta, planned = make(built), read_build(built)
    commit(catalog, RowDelta(added=added(built, 30)) if with_rows else RowDelta())
    assert_refused(catalog, delta, planned, TakenOverError)
    assert_refused(catalog, RowDelta(added=added(built, 31)), planned, TakenOverError)
    assert_refused(catalog, RowDelta(), planned, TakenOverError)


def test_small_build_fails_after_a_rollback(catalog: Catalog, built: Table) -> None:
    old = built.metadata.current_snapshot_id
    assert old is not None
    commit(catalog, RowDelta(added=added(built, 30)))
    table = catalog.load_table(str(NAME))
    planned = read_build(table)
    roll_back(catalog, table, old)
    for delta in (delta_deleting(table), RowDelta(added=added(table, 31)), RowDelta()):
        assert_refused(catalog, delta, planned, TakenOverError)


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


@DELTAS
@pytest.mark.parametrize(
    "error",
    [
        lambda: CommitStateUnknownException("no answer"),
        lambda: ConnectionError("reset"),
        lambda: CommitFailedException("no"),
    ],
)
@pytest.mark.parametrize(
    ("steps", "commits"),
    [(["fails after"], 1), (["fails before"], 2), (["fails before", "fails after"], 2), (["fails before"] * 6, 7)],
)
def test_small_build_commits_once_after_a_lost_response(
    catalog: Catalog,
    built: Table,
    make: Callable[[Table], RowDelta],
    steps: Sequence[str],
    commits: int,
    error: Callable[[], Exception],
) -> None:
    faulty, planned = Faulty(catalog, iter(steps), error), read_build(built)
    new = next_entry(planned)
    entry = commit_small_build(faulty, NAME, delta=make(built), planned=planned, new=new)  # type: ignore[arg-type]
    assert ids(catalog) == [0, 2, 3, 4, 5, 10]
    table = catalog.load_table(str(NAME))
    assert read_build(table) == entry == replace(new, snapshot_id=entry.snapshot_id, sequence_number=2)
    assert (faulty.commits, len(table.snapshots())) == (commits, 2)
    again = commit_small_build(catalog, NAME, delta=make(built), planned=planned, new=new)
    assert again == entry, "the same attempt is committed once"
    assert len(catalog.load_table(str(NAME)).snapshots()) == 2


def test_small_build_raises_unavailable_during_an_outage(catalog: Catalog, built: Table) -> None:
    faulty = Faulty(catalog, iter(["fails before"] * 100), lambda: ConnectionError("refused"))
    planned = read_build(built)
    with pytest.raises(UnavailableError, match="refused"):
        commit_small_build(faulty, NAME, delta=delta_deleting(built), planned=planned, new=next_entry(planned))  # type: ignore[arg-type]
    assert ids(catalog) == [0, 1, 2, 3, 4, 5]


class Interrupted:
    """A catalog with one concurrent commit between the check and the commit of a build."""

    def __init__(self, catalog: Catalog, meanwhile: Callable[[], object]) -> None:
        self._catalog, self._meanwhile = catalog, [meanwhile]

    def load_table(self, name: str) -> Table:
        table = self._catalog.load_table(name)
        if self._meanwhile:
            self._meanwhile.pop()()
        return table

    def __getattr__(self, name: str) -> Any:
        return getattr(self._catalog, name)


def test_commit_succeeds_after_a_concurrent_append(catalog: Catalog, built: Table) -> None:
    rows = as_arrow([(20, START, "b")]).cast(built.schema().as_arrow())
    interrupted = Interrupted(catalog, lambda: catalog.load_table(str(NAME)).append(rows))
    planned = read_build(built)
    commit_small_build(interrupted, NAME, delta=delta_removing(built), planned=planned, new=next_entry(planned))  # type: ignore[arg-type]
    assert ids(catalog) == [0, 2, 3, 4, 5, 10, 20]


@pytest.mark.parametrize("changes_rows", [True, False])
@pytest.mark.parametrize("other_changes_rows", [True, False])
def test_commit_does_not_overwrite_a_concurrent_build(
    catalog: Catalog, built: Table, monkeypatch: pytest.MonkeyPatch, changes_rows: bool, other_changes_rows: bool
) -> None:
    planned, real = read_build(built), catalog.commit_table
    others: list[BuildLedger] = []

    def commit_after_another(*arguments: Any) -> Any:
        monkeypatch.setattr(catalog, "commit_table", real)
        others.append(commit(catalog, RowDelta(added=added(built, 30)) if other_changes_rows else RowDelta()))
        return real(*arguments)

    monkeypatch.setattr(catalog, "commit_table", commit_after_another)
    with pytest.raises(TakenOverError):
        commit_small_build(
            catalog, NAME, delta=delta_deleting(built) if changes_rows else RowDelta(), planned=planned, new=next_entry(planned)
        )
    assert [read_build(catalog.load_table(str(NAME)))] == others
    assert ids(catalog) == [0, 1, 2, 3, 4, 5, *([30] if other_changes_rows else [])]


def test_build_without_rows_makes_a_snapshot_only_on_a_rest_catalog(catalog: Catalog, built: Table) -> None:
    planned = read_build(built)
    new = replace(next_entry(planned), reads={"raw.orders": InputState(5, 1)})
    entry = commit_small_build(catalog, NAME, delta=RowDelta(), planned=planned, new=new)
    table = catalog.load_table(str(NAME))
    assert entry == read_build(table)
    if isinstance(catalog, MetastoreCatalog):
        assert (entry, len(table.snapshots())) == (new, 1)
    else:
        snapshots = table.snapshots()[1:]
        assert [entry] == [replace(new, snapshot_id=snapshot.snapshot_id, sequence_number=2) for snapshot in snapshots]
    assert table.properties["headrace.read.raw.orders"] == "5"
    assert ids(catalog) == [0, 1, 2, 3, 4, 5]


def test_first_build_may_be_empty(catalog: Catalog, location: str) -> None:
    create_table(catalog, location, by_day=False)
    assert commit(catalog, RowDelta()).build_id == 1
    assert ids(catalog) == []
    assert (catalog.load_table(str(NAME)).current_snapshot() is None) == isinstance(catalog, MetastoreCatalog)


def test_entry_is_in_the_properties_and_in_the_summary(catalog: Catalog, built: Table) -> None:
    entry = commit(catalog, delta_deleting(built))
    table = catalog.load_table(str(NAME))
    snapshot = table.current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    assert (entry.snapshot_id, entry.sequence_number) == (snapshot.snapshot_id, snapshot.sequence_number)
    assert BuildLedger.from_json(table.properties[KEY]) == BuildLedger.from_json(str(snapshot.summary[KEY])) == entry
    assert snapshot.summary.operation.value == "overwrite"
    first = table.snapshots()[0].summary
    assert first is not None
    assert first.operation.value == "append"


def test_columns_that_the_rows_lack_are_null(catalog: Catalog, location: str) -> None:
    table = create_table(catalog, location, by_day=True)
    commit(
        catalog, RowDelta(added=stage_rows(table, [pa.table({"id": pa.array([7], pa.int32())}), as_arrow(ROWS).slice(0, 0)]))
    )
    assert as_rows(catalog.load_table(str(NAME)).scan().to_arrow()) == [(7, None, None)]
    assert len(tasks_of(catalog.load_table(str(NAME)))) == 1
