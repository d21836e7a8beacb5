"""The landing ledger in a table, also after a rollback, compaction and expiry."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from headrace.errors import LandingError
from headrace.iceberg.commits.append import append_checkpoint
from headrace.iceberg.ledgers.build import BuildLedger, CheckedExpectation
from headrace.iceberg.ledgers.landing import KEY, Ledger, read_ledger, was_rolled_back
from headrace.spec.model.layers import OnFailure
from tests.iceberg.tables import add_files, roll_back, write_files

offsets = st.dictionaries(st.integers(0, 1000), st.integers(0, 2**62))
names = st.text(st.characters(exclude_categories=["Cs"]), max_size=10)
ledgers = st.builds(
    Ledger,
    checkpoint_id=st.integers(0, 2**40),
    offsets=offsets,
    writer=names,
    quarantined=st.integers(0, 10**9),
    extras=st.dictionaries(names, st.integers(1, 10**9)),
    gaps=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(0, 9))).map(tuple),
    quarantine_files=st.lists(names).map(tuple),
    snapshot_id=st.integers(0, 2**62),
    sequence_number=st.integers(0, 2**40),
)


@given(ledgers)
def test_ledger_json_round_trip(ledger: Ledger) -> None:
    assert Ledger.from_json(ledger.to_json()) == ledger


def land(catalog: Catalog, table: Table, offsets: Mapping[int, int], *, writer: str, bad: tuple[str, ...] = ()) -> Table:
    planned = read_ledger(table)
    new = Ledger(planned.checkpoint_id + 1, offsets, writer, quarantined=planned.quarantined + len(bad), quarantine_files=bad)
    return append_checkpoint(catalog, table, files=write_files(table, rows=3), planned=planned, new=new)


def test_ledger_of_a_table_without_landings(table: Table) -> None:
    assert read_ledger(table) == Ledger()
    assert not was_rolled_back(table)


def test_ledger_entry_is_in_the_snapshot_and_the_properties(catalog: Catalog, table: Table) -> None:
    table = land(catalog, table, {0: 3}, writer="a")
    snapshot = table.current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    assert snapshot.summary.additional_properties[KEY] == table.properties[KEY]
    ledger = read_ledger(catalog.load_table(table.name()))
    assert (ledger.checkpoint_id, dict(ledger.offsets), ledger.writer) == (1, {0: 3}, "a")
    assert (ledger.snapshot_id, ledger.sequence_number) == (snapshot.snapshot_id, snapshot.sequence_number)


def test_foreign_snapshot_is_no_rollback(catalog: Catalog, table: Table) -> None:
    table = land(catalog, table, {0: 3}, writer="a")
    table = add_files(table)
    assert read_ledger(table).writer == "a"
    assert not was_rolled_back(table)


def test_expiry_of_the_snapshot_is_no_rollback(catalog: Catalog, table: Table) -> None:
    table = add_files(land(catalog, table, {0: 3}, writer="a"))
    table.maintenance.expire_snapshots().by_id(read_ledger(table).snapshot_id).commit()
    table = catalog.load_table(table.name())
    assert len(table.snapshots()) == 1
    assert not was_rolled_back(table)
    assert read_ledger(table).writer == "a"


def test_expiry_between_the_entry_and_now_is_no_rollback(catalog: Catalog, table: Table) -> None:
    table = add_files(add_files(add_files(land(catalog, table, {0: 3}, writer="a"))))
    middle = table.snapshots()[2].snapshot_id
    table.maintenance.expire_snapshots().by_id(middle).commit()
    table = catalog.load_table(table.name())
    assert len(table.snapshots()) == 3
    assert not was_rolled_back(table)
    assert dict(read_ledger(table).offsets) == {0: 3}


def test_after_a_rollback_the_entry_is_that_of_the_snapshot(catalog: Catalog, table: Table) -> None:
    first = land(catalog, table, {0: 3}, writer="a", bad=("bad-1",))
    target = first.metadata.current_snapshot_id
    assert target is not None
    land(catalog, land(catalog, first, {0: 6}, writer="b"), {0: 9}, writer="c", bad=("bad-3",))
    rolled = roll_back(catalog, table, target)
    assert was_rolled_back(rolled)
    ledger = read_ledger(rolled)
    assert dict(ledger.offsets) == {0: 3}
    assert (ledger.checkpoint_id, ledger.writer) == (3, "c"), "no checkpoint number is used twice"
    assert ledger.quarantine_files == (), "what was refused then is in the quarantine, or is read again"
    again = land(catalog, rolled, {0: 9}, writer="d")
    assert not was_rolled_back(again)
    assert read_ledger(again).checkpoint_id == 4


def test_rollback_by_compaction_on_an_older_branch_is_noticed(catalog: Catalog, table: Table) -> None:
    """Rolled back, then written to by someone else: the newest entry is no ancestor, though its number is smaller."""
    first = land(catalog, table, {0: 3}, writer="a")
    target = first.metadata.current_snapshot_id
    assert target is not None
    land(catalog, first, {0: 6}, writer="b")
    rolled = add_files(roll_back(catalog, table, target))
    assert was_rolled_back(rolled)
    assert dict(read_ledger(rolled).offsets) == {0: 3}


@pytest.mark.parametrize("times", [1, 3])
def test_rollback_before_all_entries_starts_over(catalog: Catalog, table: Table, times: int) -> None:
    table = add_files(table)
    target = table.metadata.current_snapshot_id
    assert target is not None
    for number in range(times):
        table = land(catalog, table, {0: number + 1}, writer=f"w{number}")
    ledger = read_ledger(roll_back(catalog, table, target))
    assert (dict(ledger.offsets), ledger.checkpoint_id) == ({}, times)


def test_rollback_to_a_snapshot_without_an_entry_is_an_error(catalog: Catalog, table: Table) -> None:
    """Read as "nothing was landed yet", everything would be landed a second time."""
    table = add_files(land(catalog, table, {0: 3}, writer="a"))
    target, before = table.metadata.current_snapshot_id, read_ledger(table).snapshot_id
    assert target is not None
    land(catalog, catalog.load_table(table.name()), {0: 6}, writer="b")
    catalog.load_table(table.name()).maintenance.expire_snapshots().by_id(before).commit()
    with pytest.raises(LandingError, match="has no ledger entry"):
        read_ledger(roll_back(catalog, table, target))


def test_build_ledger_records_the_names_that_existing_tables_have() -> None:
    kinds: tuple[OnFailure, ...] = get_args(OnFailure)
    entry = BuildLedger(expectations=tuple(CheckedExpectation("n > 0", kind, 10, 1, "{}") for kind in kinds))
    recorded = json.loads(entry.to_json())["expectations"]
    assert [values["otherwise"] for values in recorded] == ["count", "drop", "quarantine", "fail"]
    assert recorded[0] == {"sentence": "n > 0", "otherwise": "count", "checked": 10, "failed": 1, "sample": "{}"}
    assert BuildLedger.from_json(entry.to_json()) == entry
