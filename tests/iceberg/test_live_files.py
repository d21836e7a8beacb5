"""The files of a snapshot and the deletes that apply to them."""

from __future__ import annotations

from pathlib import Path
from threading import Thread

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.manifest import DataFileContent, ManifestFile
from pyiceberg.table import Table
from pyiceberg.typedef import Record

from headrace.errors import BuildError
from headrace.iceberg.catalog.tables import ensure_table
from headrace.iceberg.files.live_files import LiveFile, LiveFiles, bounds_field, may_hold
from headrace.spec.model.pipeline import TableName, Transform
from headrace.spec.model.types import Column, Primitive
from tests.iceberg.position_deletes import Place, commit_deletes, delete_rows, write_deletes

COLUMNS = (Column("n", Primitive("long")), Column("kind", Primitive("string")))


def append(catalog: Catalog, table: Table, *numbers: int | None, kind: str = "a") -> Table:
    table.append(pa.table({"n": pa.array(numbers, pa.int64()), "kind": [kind] * len(numbers)}))
    return catalog.load_table(table.name())


@pytest.fixture
def things(catalog: Catalog, tmp_path: Path) -> Table:
    return ensure_table(catalog, TableName("raw", "things"), columns=COLUMNS, location=f"file://{tmp_path}/things")


@pytest.fixture
def by_kind(catalog: Catalog, tmp_path: Path) -> Table:
    name, partition_by = TableName("raw", "by_kind"), (Transform("identity", "kind"),)
    return ensure_table(catalog, name, columns=COLUMNS, partition_by=partition_by, location=f"file://{tmp_path}/by_kind")


def deletes_of(files: tuple[LiveFile, ...]) -> list[list[str]]:
    return [[delete.file_path for delete in file.deletes] for file in files]


def test_table_without_a_snapshot_has_no_files(things: Table) -> None:
    assert LiveFiles().of(things, None) == ()


def test_files_are_those_of_the_snapshot_oldest_first(catalog: Catalog, things: Table) -> None:
    files = LiveFiles()
    first = append(catalog, things, 1, 2)
    snapshot = first.metadata.current_snapshot_id
    second = append(catalog, first, 3)
    assert [file.rows for file in files.of(second, None)] == [2, 1]
    assert [file.rows for file in files.of(second, snapshot)] == [2]
    assert files.of(second, None)[0] == files.of(first, snapshot)[0]
    file = files.of(second, None)[1]
    assert (file.sequence_number, file.path, file.size) == (2, file.file.file_path, len(second.io.new_input(file.path)))


def test_files_that_were_overwritten_are_gone(catalog: Catalog, things: Table) -> None:
    table = append(catalog, append(catalog, things, 1, 2), 3)
    table.overwrite(pa.table({"n": pa.array([7], pa.int64()), "kind": ["a"]}))
    table = catalog.load_table(table.name())
    assert [file.rows for file in LiveFiles().of(table, None)] == [1]


def test_new_snapshot_reads_only_its_new_manifests(catalog: Catalog, things: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    fetch = ManifestFile.fetch_manifest_entry

    def counted(self: ManifestFile, *arguments: object, **named: object) -> object:
        read.append(self.manifest_path)
        return fetch(self, *arguments, **named)  # type: ignore[arg-type]

    files = LiveFiles()
    table = append(catalog, append(catalog, things, 1), 2)
    monkeypatch.setattr(ManifestFile, "fetch_manifest_entry", counted)
    files.of(table, None)
    assert len(read) == 2
    table = append(catalog, table, 3)
    read.clear()
    assert len(files.of(table, None)) == 3
    files.of(table, None)
    assert len(read) == 1


def test_manifest_cache_is_bounded_and_still_right(catalog: Catalog, things: Table) -> None:
    table = things
    for number in range(4):
        table = append(catalog, table, number)
    files = LiveFiles(most_files=2)
    assert len(files.of(table, None)) == 4
    assert len(files._manifests) <= 2
    assert len(files._snapshots) == 0
    assert len(files.of(table, None)) == 4


def test_delete_applies_to_files_that_are_not_newer(catalog: Catalog, things: Table) -> None:
    table = append(catalog, things, 1, 2)
    path = LiveFiles().of(table, None)[0].path
    table = append(catalog, table, 3)
    table = delete_rows(catalog, table, {path: [0]})
    table = append(catalog, table, 4)
    assert [len(paths) for paths in deletes_of(LiveFiles().of(table, None))] == [1, 0, 0]


@pytest.mark.parametrize("bounded", [True, False])
def test_deletes_of_several_files_apply_by_partition_and_bounds(catalog: Catalog, by_kind: Table, bounded: bool) -> None:
    table = append(catalog, append(catalog, append(catalog, by_kind, 1, kind="a"), 2, kind="a"), 3, kind="b")
    paths = [file.path for file in LiveFiles().of(table, None)]
    low, high = sorted(paths[:2])
    place = Place(Record("a"), bounds=(low, high) if bounded else None)
    table = commit_deletes(catalog, table, write_deletes(table, {paths[0]: [0], paths[1]: [0]}, place))
    table = append(catalog, table, 4, kind="a")
    assert [len(deletes) for deletes in deletes_of(LiveFiles().of(table, None))] == [1, 1, 0, 0]


def test_bounds_that_exclude_a_path_exclude_the_delete(catalog: Catalog, things: Table) -> None:
    table = append(catalog, things, 1)
    path = LiveFiles().of(table, None)[0].path
    place = Place(Record(), bounds=(path + "0", path + "1"))
    table = commit_deletes(catalog, table, write_deletes(table, {path + "0": [0]}, place))
    assert deletes_of(LiveFiles().of(table, None)) == [[]]


def test_equality_deletes_are_refused(catalog: Catalog, things: Table) -> None:
    table = append(catalog, things, 1)
    place = Place(Record(), content=DataFileContent.EQUALITY_DELETES)
    table = commit_deletes(catalog, table, write_deletes(table, {"x": [0]}, place))
    with pytest.raises(BuildError, match="equality deletes are not supported"):
        LiveFiles().of(table, None)


def test_snapshot_that_does_not_exist_is_named(catalog: Catalog, things: Table) -> None:
    table = append(catalog, things, 1)
    with pytest.raises(BuildError, match="snapshot 42 does not exist"):
        LiveFiles().of(table, 42)


def test_bounds_tell_whether_a_file_may_hold_a_value(catalog: Catalog, things: Table) -> None:
    table = append(catalog, things, -5, 10)
    file = LiveFiles().of(table, None)[0].file
    ranges = [(-9, -6), (-9, -5), (0, 1), (10, 12), (11, 12)]
    assert [may_hold(file, bounds_field(table.schema(), "n"), *bounds) for bounds in ranges] == [False, True, True, True, False]
    with pytest.raises(TypeError, match="kind"):
        may_hold(file, bounds_field(table.schema(), "kind"), 1, 2)


def test_without_bounds_a_file_may_hold_anything(catalog: Catalog, things: Table, tmp_path: Path) -> None:
    table = append(catalog, things, None)
    wider = (*COLUMNS, Column("later", Primitive("long")))
    table = ensure_table(catalog, TableName("raw", "things"), columns=wider, location=table.location())
    file = LiveFiles().of(table, None)[0].file
    assert may_hold(file, bounds_field(table.schema(), "n"), 1, 2)
    assert may_hold(file, bounds_field(table.schema(), "later"), 1, 2)


def test_bounds_of_a_widened_column_are_still_read(catalog: Catalog, tmp_path: Path) -> None:
    name, location = TableName("raw", "widened"), f"file://{tmp_path}/widened"
    table = ensure_table(catalog, name, columns=(Column("n", Primitive("int")),), location=location)
    table.append(pa.table({"n": pa.array([-2, 5], pa.int32())}))
    table = ensure_table(catalog, name, columns=(Column("n", Primitive("long")),), location=location)
    file = LiveFiles().of(table, None)[0].file
    ranges = [(-9, -3), (-2, -2), (6, 1 << 40)]
    assert [may_hold(file, bounds_field(table.schema(), "n"), *bounds) for bounds in ranges] == [False, True, False]


def test_threads_get_the_same_files(catalog: Catalog, things: Table) -> None:
    table = append(catalog, append(catalog, things, 1), 2)
    files, results = LiveFiles(), []
    threads = [Thread(target=lambda: results.append(files.of(table, None))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 8
    assert all(result == results[0] for result in results)
