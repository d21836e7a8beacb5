"""A large build, which Java commits, is committed once or not at all, also with concurrent commits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from headrace.errors import TakenOverError
from headrace.iceberg.catalog.spark import spark_name
from headrace.iceberg.catalog.tables import open_catalog, table_location
from headrace.iceberg.commits import build_commit
from headrace.iceberg.commits.build_commit import FileChanges, commit_build
from headrace.iceberg.commits.row_delta import RowDelta
from headrace.iceberg.commits.small_build_commit import commit_small_build
from headrace.iceberg.files.spark_files import load_java_table, stage_files
from headrace.iceberg.files.staged_rows import stage_rows
from headrace.iceberg.ledgers.build import KEY, BuildLedger, read_build
from headrace.settings import Settings
from tests.iceberg.delta_table import NAME, START, as_arrow, as_rows, commit, create_table, next_entry

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture
def catalog(lake_settings: Settings) -> Catalog:
    return open_catalog(lake_settings)


@pytest.fixture
def built(catalog: Catalog, lake_settings: Settings) -> Table:
    """A table with the row 0."""
    table = create_table(catalog, table_location(lake_settings, NAME), by_day=False, **{"commit.retry.num-retries": "0"})
    commit(catalog, RowDelta(added=stage_rows(table, [as_arrow([(0, START, "a")])])))
    return catalog.load_table(str(NAME))


def ids(catalog: Catalog) -> list[int]:
    return [row[0] for row in as_rows(catalog.load_table(str(NAME)).scan().to_arrow())]


def java_files(session: SparkSession, *numbers: int) -> FileChanges:
    """Return files of new rows, as Spark stages them."""
    rows = session.table(spark_name(NAME)).sparkSession.createDataFrame(
        [(number, START, "java") for number in numbers], "id bigint, at timestamp, note string"
    )
    staged = stage_files(session, load_java_table(session, NAME), rows.coalesce(1))
    return FileChanges(added=staged.files)


def at_the_last_moment(monkeypatch: pytest.MonkeyPatch, meanwhile: Callable[[], object]) -> None:
    """Run a concurrent commit right before Java's commit, and again if it fails: the build's commit is then retried, too."""
    prepare = build_commit._drop_old_snapshots
    pending = [meanwhile]

    def prepare_late(*arguments: Any) -> None:
        prepare(*arguments)
        if not pending:
            return
        commit_meanwhile = pending.pop()
        try:
            commit_meanwhile()
        except Exception:
            pending.append(commit_meanwhile)
            raise

    monkeypatch.setattr(build_commit, "_drop_old_snapshots", prepare_late)


@pytest.mark.parametrize("changes_rows", [True, False])
@pytest.mark.parametrize("other_changes_rows", [True, False])
def test_commit_does_not_overwrite_a_concurrent_build(
    session: SparkSession,
    catalog: Catalog,
    built: Table,
    monkeypatch: pytest.MonkeyPatch,
    changes_rows: bool,
    other_changes_rows: bool,
) -> None:
    planned = read_build(built)
    files = java_files(session, 1) if changes_rows else FileChanges()
    others: list[BuildLedger] = []

    def build() -> None:
        delta = RowDelta(added=stage_rows(built, [as_arrow([(2, START, "b")])])) if other_changes_rows else RowDelta()
        others.append(commit_small_build(catalog, NAME, delta=delta, planned=planned, new=next_entry(planned)))

    at_the_last_moment(monkeypatch, build)
    with pytest.raises(TakenOverError):
        commit_build(session, catalog, NAME, files=files, planned=planned, new=next_entry(planned))
    assert [read_build(catalog.load_table(str(NAME)))] == others
    assert ids(catalog) == ([0, 2] if other_changes_rows else [0])


def test_commit_succeeds_after_a_concurrent_append(
    session: SparkSession, catalog: Catalog, built: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever appends knows no entries, such as a compaction."""
    planned = read_build(built)
    files, new = java_files(session, 1), next_entry(planned)
    rows = as_arrow([(20, START, "b")]).cast(built.schema().as_arrow())
    at_the_last_moment(monkeypatch, lambda: catalog.load_table(str(NAME)).append(rows))
    entry = commit_build(session, catalog, NAME, files=files, planned=planned, new=new)
    assert ids(catalog) == [0, 1, 20]
    table = catalog.load_table(str(NAME))
    assert read_build(table) == entry == replace(new, snapshot_id=entry.snapshot_id, sequence_number=3)
    assert BuildLedger.from_json(table.properties[KEY]) == entry
