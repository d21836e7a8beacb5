"""Row deltas: in any order, every engine reads the rows of a plain model, and Java commits on top of them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.manifest import ManifestContent, ManifestEntryStatus
from pyiceberg.table import FileScanTask, Table

from headrace.iceberg.catalog.spark import open_spark_catalog, spark_name
from headrace.iceberg.catalog.tables import count_rows
from headrace.iceberg.commits.build_commit import FileChanges, commit_build
from headrace.iceberg.commits.row_delta import RowDelta
from headrace.iceberg.deletes.position_deletes import own_deletes, stage_position_deletes
from headrace.iceberg.files.spark_files import load_java_table, plan_files
from headrace.iceberg.files.staged_rows import stage_rows
from headrace.iceberg.ledgers.build import read_build
from headrace.iceberg.rows.duck import open_duckdb
from headrace.settings import load_settings
from headrace.spark.active_session import use_session
from headrace.spark.arrow import to_arrow
from tests.iceberg.delta_table import (
    NAME,
    START,
    DeltaTable,
    as_arrow,
    as_rows,
    check_metadata,
    commit,
    create_table,
    delete_positions,
    next_entry,
    tasks_of,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def duck() -> Iterator[duckdb.DuckDBPyConnection]:
    with open_duckdb() as connection:
        yield connection


@pytest.mark.parametrize("by_day", [False, True])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_random_deltas_read_like_the_model(
    catalog: Catalog, tmp_path: Path, duck: duckdb.DuckDBPyConnection, by_day: bool, seed: int
) -> None:
    create_table(catalog, f"file://{tmp_path}/orders", by_day=by_day, **{"commit.manifest.min-count-to-merge": "4"})
    lake = DeltaTable(catalog, random.Random(seed))
    for _ in range(25):
        lake.change()
        lake.check(duck)


@pytest.mark.spark
@pytest.mark.parametrize("by_day", [False, True])
def test_many_commits_stay_readable_and_java_goes_on(
    catalog: Catalog, tmp_path: Path, duck: duckdb.DuckDBPyConnection, spark: SparkSession, by_day: bool
) -> None:
    create_table(catalog, f"file://{tmp_path}/orders", by_day=by_day, **{"commit.manifest.min-count-to-merge": "8"})
    lake, most = DeltaTable(catalog, random.Random(7)), 0
    for number in range(150):
        lake.change()
        if number % 5 == 0:
            lake.check(duck)
        most = max(most, count_manifests(lake))
    assert 8 < most <= 18, "data and delete manifests are merged apart, and those without live files are dropped"
    assert len(lake.table.snapshots()) < 110, "the history is thinned"
    session = open_spark_catalog(spark, load_settings(flags={}, environ={}, folder=tmp_path), rows="few")
    use_session(session)
    check_spark(lake, session)
    change_with_java(lake, session)
    check_spark(lake, session)
    lake.check(duck)
    compact_with_java(lake, session)
    check_spark(lake, session)
    lake.check(duck)
    delete_with_spark(lake, session)
    for _ in range(10):
        lake.change()
        lake.check(duck)
    check_spark(lake, session)


def test_manifests_are_merged_when_there_are_enough(catalog: Catalog, tmp_path: Path) -> None:
    create_table(catalog, f"file://{tmp_path}/orders", by_day=False, **{"commit.manifest.min-count-to-merge": "20"})
    counts = []
    for number in range(0, 48, 2):
        table = catalog.load_table(str(NAME))
        rows = stage_rows(table, [as_arrow([(number, START, "a"), (number + 1, START, "b")])])
        delta = delete_positions(table, task_with(table, number - 2), [0], added=rows) if number else RowDelta(added=rows)
        commit(catalog, delta)
        snapshot = catalog.load_table(str(NAME)).current_snapshot()
        counts.append(len(snapshot.manifests(table.io)) if snapshot else 0)
    assert max(counts) == 19 + 18
    assert counts[-1] == (1 + 4) + (1 + 3), "a merged manifest and new ones, for data files and for delete files"
    table = catalog.load_table(str(NAME))
    assert [row[0] for row in as_rows(table.scan().to_arrow())] == [*range(1, 46, 2), 46, 47]
    check_metadata(table)


def task_with(table: Table, number: int) -> FileScanTask:
    return next(task for task in tasks_of(table) if task.file.lower_bounds[1] == number.to_bytes(8, "little"))


def count_manifests(lake: DeltaTable) -> int:
    snapshot = lake.table.current_snapshot()
    return len(snapshot.manifests(lake.table.io)) if snapshot else 0


def check_spark(lake: DeltaTable, session: SparkSession) -> None:
    session.catalog.refreshTable(spark_name(NAME))
    assert as_rows(to_arrow(session.table(spark_name(NAME)))) == sorted(lake.rows.values(), key=lambda row: row[0])


def change_with_java(lake: DeltaTable, session: SparkSession) -> None:
    """Remove a file that has deletes, as `commit_build` does it through Java."""
    table, java = lake.table, load_java_table(session, NAME)
    snapshot_id = table.metadata.current_snapshot_id
    tasks = plan_files(java, snapshot_id=snapshot_id).tasks
    gone = next(task for task in tasks_of(table) if task.delete_files)
    lake._forget(table, gone, range(gone.file.record_count))
    changes = FileChanges((), (tasks[gone.file.file_path],), snapshot_id)
    planned = read_build(table)
    commit_build(session, lake.catalog, NAME, files=changes, planned=planned, new=next_entry(planned))


def compact_with_java(lake: DeltaTable, session: SparkSession) -> None:
    actions = session._jvm.org.apache.iceberg.spark.actions.SparkActions.get(session._jsparkSession)  # type: ignore[union-attr]
    java = load_java_table(session, NAME)
    actions.rewriteDataFiles(java).option("rewrite-all", "true").option("remove-dangling-deletes", "true").execute()
    assert len(tasks_of(lake.table)) <= 4


def delete_with_spark(lake: DeltaTable, session: SparkSession) -> None:
    """Delete rows with Spark SQL, which writes a delete file for each data file that the next delta has to replace."""
    session.sql(f"ALTER TABLE {spark_name(NAME)} SET TBLPROPERTIES ('write.delete.mode' = 'merge-on-read')")
    session.sql(f"DELETE FROM {spark_name(NAME)} WHERE id % 5 = 0")
    lake.rows = {number: row for number, row in lake.rows.items() if number % 5}
    assert any(task.delete_files for task in tasks_of(lake.table))
    check_spark(lake, session)


def test_rewritten_manifest_keeps_sequence_numbers_and_names_what_left(catalog: Catalog, tmp_path: Path) -> None:
    table = create_table(catalog, f"file://{tmp_path}/orders", by_day=False)
    parts = [as_arrow([(number, START, "a"), (number + 1, START, "b")]) for number in (0, 2)]
    commit(catalog, RowDelta(added=stage_rows(table, parts)))
    table = catalog.load_table(str(NAME))
    first, second = tasks_of(table)
    commit(catalog, delete_positions(table, first, [1]))
    table = catalog.load_table(str(NAME))
    first = next(task for task in tasks_of(table) if task.delete_files)
    (old,) = first.delete_files
    entry = commit(
        catalog, RowDelta(removed=[first.file], outdated=own_deletes([first]), snapshot_id=table.metadata.current_snapshot_id)
    )
    table = catalog.load_table(str(NAME))
    snapshot = table.current_snapshot()
    assert snapshot is not None
    entries = {
        (manifest.content, entry.data_file.file_path): (entry.status, entry.snapshot_id, entry.sequence_number)
        for manifest in snapshot.manifests(table.io)
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=False)
    }
    first_id = table.snapshots()[0].snapshot_id
    assert entries == {
        (ManifestContent.DATA, first.file.file_path): (ManifestEntryStatus.DELETED, entry.snapshot_id, 1),
        (ManifestContent.DATA, second.file.file_path): (ManifestEntryStatus.EXISTING, first_id, 1),
        (ManifestContent.DELETES, old.file_path): (ManifestEntryStatus.DELETED, entry.snapshot_id, 2),
    }
    assert snapshot.summary is not None
    assert {name: snapshot.summary[name] for name in ("deleted-data-files", "deleted-records", "removed-position-deletes")} == {
        "deleted-data-files": "1",
        "deleted-records": "2",
        "removed-position-deletes": "1",
    }
    check_metadata(table)
    assert table.inspect.delete_files().num_rows == 0
    assert count_rows(table) == 2


def test_deleting_again_holds_the_old_positions_and_replaces_the_file(catalog: Catalog, tmp_path: Path) -> None:
    table = create_table(catalog, f"file://{tmp_path}/orders", by_day=True)
    commit(catalog, RowDelta(added=stage_rows(table, [as_arrow([(number, START, None) for number in range(6)])])))
    for positions in ([4, 1], [5, 1, 5]):
        table = catalog.load_table(str(NAME))
        (task,) = tasks_of(table)
        commit(catalog, delete_positions(table, task, positions))
    table = catalog.load_table(str(NAME))
    (task,) = tasks_of(table)
    (deletes,) = task.delete_files
    assert (deletes.record_count, deletes.partition, deletes.spec_id) == (3, task.file.partition, task.file.spec_id)
    assert [row[0] for row in as_rows(table.scan().to_arrow())] == [0, 2, 3]
    assert not stage_position_deletes(table, [(task, pa.array([1, 4]))]).files, "nothing new is deleted"
    with pytest.raises(ValueError, match="has 6 rows"):
        stage_position_deletes(table, [(task, pa.array([6]))])


def test_delta_that_changes_files_names_its_snapshot(catalog: Catalog, tmp_path: Path) -> None:
    table = create_table(catalog, f"file://{tmp_path}/orders", by_day=False)
    files = stage_rows(table, [as_arrow([(1, None, None)])])
    with pytest.raises(ValueError, match="snapshot"):
        RowDelta(removed=files)
