"""Of a concurrent erasure and landing, one fails."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from headrace.errors import TakenOverError
from headrace.iceberg.catalog.tables import ensure_table, open_catalog, table_location
from headrace.iceberg.commits import erase_commit
from headrace.iceberg.commits.append import append_checkpoint
from headrace.iceberg.commits.erase_commit import Replaced, commit_landed_erasure
from headrace.iceberg.files.spark_files import load_java_table, plan_files
from headrace.iceberg.ledgers.landing import Ledger, read_ledger
from headrace.settings import Settings
from headrace.spec import Column, Primitive, TableName
from tests.iceberg.tables import numbers, write_files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

NAME = TableName("raw", "numbers")


@pytest.fixture
def catalog(lake_settings: Settings) -> Catalog:
    return open_catalog(lake_settings)


@pytest.fixture
def landed(catalog: Catalog, lake_settings: Settings) -> Table:
    """A table in which 0, 1 and 2 have landed."""
    columns = (Column("n", Primitive("long")),)
    return land(catalog, ensure_table(catalog, NAME, columns=columns, location=table_location(lake_settings, NAME)), first=0)


def land(catalog: Catalog, table: Table, *, first: int) -> Table:
    planned = read_ledger(table)
    new = Ledger(planned.checkpoint_id + 1, {0: first + 3}, writer=f"from {first}")
    return append_checkpoint(catalog, table, files=write_files(table, rows=3, first=first), planned=planned, new=new)


def erased_files(session: SparkSession, table: Table, *, goes: bool) -> Replaced:
    if not goes:
        return Replaced()
    tasks = plan_files(load_java_table(session, NAME), snapshot_id=table.metadata.current_snapshot_id).tasks
    return Replaced(removed=tuple(task.file() for task in tasks.values()))


@pytest.mark.parametrize("goes", [True, False], ids=["rows go", "nothing goes"])
def test_erasure_fails_after_a_concurrent_landing(
    session: SparkSession, catalog: Catalog, landed: Table, monkeypatch: pytest.MonkeyPatch, goes: bool
) -> None:
    name = "replace_files" if goes else "_change_nothing"
    planned, change = read_ledger(landed), getattr(erase_commit, name)

    def change_late(*arguments: Any) -> Any:
        result = change(*arguments)
        monkeypatch.setattr(erase_commit, name, change)
        land(catalog, catalog.load_table(str(NAME)), first=3)
        return result

    monkeypatch.setattr(erase_commit, name, change_late)
    with pytest.raises(TakenOverError):
        commit_landed_erasure(session, catalog, NAME, files=erased_files(session, landed, goes=goes), planned=planned)
    assert read_ledger(catalog.load_table(str(NAME))).writer == "from 3"
    assert numbers(catalog, landed) == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("goes", [True, False], ids=["rows go", "nothing goes"])
def test_landing_fails_after_a_concurrent_erasure(session: SparkSession, catalog: Catalog, landed: Table, goes: bool) -> None:
    erased = commit_landed_erasure(
        session, catalog, NAME, files=erased_files(session, landed, goes=goes), planned=read_ledger(landed)
    )
    with pytest.raises(TakenOverError):
        land(catalog, landed, first=3)
    assert read_ledger(catalog.load_table(str(NAME))) == erased
    assert numbers(catalog, landed) == ([] if goes else [0, 1, 2])
