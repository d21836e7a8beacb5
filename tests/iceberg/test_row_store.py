"""Rows of data files in the local cache equal a scan's, for any files, schemas and cache states."""

from __future__ import annotations

import os
import stat
import tempfile
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from random import Random
from threading import Thread
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from headrace.iceberg.catalog.tables import ensure_table, open_catalog
from headrace.iceberg.deletes import position_deletes
from headrace.iceberg.files.live_files import LiveFile, LiveFiles
from headrace.iceberg.files.write import TableFiles, TableFormat
from headrace.iceberg.rows import row_index as row_index_module
from headrace.iceberg.rows import row_store as row_store_module
from headrace.iceberg.rows.row_files import RowFormat
from headrace.iceberg.rows.row_sizes import estimate_bytes
from headrace.iceberg.rows.row_store import FILE, POSITION, RowStore, TooLargeError
from headrace.iceberg.rows.row_store_size import stored_sizes
from headrace.iceberg.schema.columns import iceberg_schema
from headrace.settings import load_settings
from headrace.spec.model import types
from headrace.spec.model.pipeline import TableName
from headrace.spec.model.types import Column, ColumnType, Primitive
from tests.iceberg.position_deletes import delete_rows

UTC = timezone.utc
LARGE = 1 << 30
NAN = float("nan")

_DEEP = (Column("names", types.Array(Primitive("string"))), Column("by", types.Map(types.Array(Primitive("long")))))
OLD = (
    Column("i", Primitive("int")),
    Column("l", Primitive("long")),
    Column("f", Primitive("float")),
    Column("d", Primitive("double")),
    Column("m", types.Decimal(9, 2)),
    Column("b", Primitive("boolean")),
    Column("s", Primitive("string")),
    Column("x", Primitive("binary")),
    Column("day", Primitive("date")),
    Column("at", Primitive("timestamp")),
    Column("wall", Primitive("timestamp_ntz")),
    Column("inside", types.Struct((Column("a", Primitive("int")),))),
    Column("deep", types.Struct(_DEEP)),
    Column("many", types.Array(types.Struct((Column("a", Primitive("int")),)))),
    Column("named", types.Map(types.Struct((Column("a", Primitive("string")),)))),
)
_WIDER: dict[str, ColumnType] = {
    "i": Primitive("long"),
    "f": Primitive("double"),
    "m": types.Decimal(18, 2),
    "inside": types.Struct((Column("a", Primitive("long")), Column("new", Primitive("string")))),
    "deep": types.Struct((*_DEEP, Column("new", Primitive("string")))),
    "many": types.Array(types.Struct((Column("a", Primitive("long")), Column("new", Primitive("double"))))),
    "named": types.Map(types.Struct((Column("a", Primitive("string")), Column("new", Primitive("date"))))),
}
NEW = (*(Column(column.name, _WIDER.get(column.name, column.type)) for column in OLD), Column("added", Primitive("string")))
KEYS = [column.name for column in NEW if column.name not in ("inside", "deep", "many", "named")]

# Few values, so that rows and matches often meet; those among them that are equal without being the same, and their like.
_VALUES: dict[str, list[Any]] = {
    "i": [0, 1, -1, 2**31 - 1],
    "l": [0, 1, -(2**63), 2**63 - 1],
    "f": [0.0, -0.0, NAN, 1.5, float("inf")],
    "d": [0.0, -0.0, NAN, -NAN, 0.1, float("-inf")],
    "m": [Decimal("0.00"), Decimal("1.20"), Decimal("-9999999.99")],
    "b": [True, False],
    "s": ["", "a", "ä", "a longer text than twelve bytes"],
    "x": [b"", b"a", b"\x00\xff", b"more than twelve bytes"],
    "day": [date(1970, 1, 1), date(2026, 2, 3), date(1900, 1, 1)],
    "at": [datetime(2026, 2, 3, 4, 5, 6, 7, tzinfo=UTC), datetime(1960, 1, 1, tzinfo=UTC)],
    "wall": [datetime(2026, 2, 3, 4, 5, 6, 7), datetime(1960, 1, 1)],
    "added": ["", "a"],
    "inside": [{"a": 1}, {"a": None}],
    "deep": [
        {"names": None, "by": None},
        {"names": ["a", None], "by": [("k", [1, None]), ("n", None)]},
        {"names": [], "by": []},
    ],
    "many": [[], [{"a": 1}, None, {"a": None}]],
    "named": [[], [("k", {"a": "v"}), ("n", None)]],
}


def row_of(columns: Sequence[Column]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({column.name: st.none() | st.sampled_from(_VALUES[column.name]) for column in columns})


@dataclass(frozen=True)
class Step:
    """A file with these rows, written under the old or the new schema, of which these are deleted."""

    rows: list[dict[str, Any]]
    deleted: list[int]


def steps(columns: Sequence[Column]) -> st.SearchStrategy[list[Step]]:
    rows = st.lists(row_of(columns), min_size=1, max_size=6)
    step = rows.flatmap(
        lambda rows: st.builds(Step, st.just(rows), st.lists(st.integers(0, len(rows) - 1), unique=True, max_size=3))
    )
    return st.lists(step, max_size=3)


@st.composite
def matches(draw: st.DrawFn) -> pa.Table:
    names = draw(st.lists(st.sampled_from(KEYS), min_size=1, max_size=3, unique=True))
    rows = draw(
        st.lists(st.fixed_dictionaries({name: st.none() | st.sampled_from(_VALUES[name]) for name in names}), max_size=8)
    )
    schema = row_schema_of(NEW)
    return pa.Table.from_pylist(rows, schema=pa.schema([schema.field(name) for name in names]))


def row_schema_of(columns: tuple[Column, ...]) -> pa.Schema:
    return RowFormat.of(iceberg_schema(columns)).schema


def make_table(catalog: Catalog, folder: Path, columns: tuple[Column, ...]) -> Table:
    return ensure_table(catalog, TableName("raw", "rows"), columns=columns, location=f"file://{folder}/rows")


def fill(catalog: Catalog, table: Table, files: Sequence[Step]) -> Table:
    """Write a file for each step in one commit, delete rows of them in another, and return the table after it."""
    form, deleted = TableFormat(table.schema(), table.spec()), {}
    with table.transaction() as transaction, transaction.update_snapshot().fast_append() as append:
        for step in files:
            writer = TableFiles(form, folder=f"{table.location()}/data", name=uuid.uuid4().hex)
            writer.write(pa.Table.from_pylist(step.rows, schema=form.arrow_schema))
            (file,) = writer.close()
            append.append_data_file(file)
            deleted[file.file_path] = step.deleted
    return delete_rows(catalog, catalog.load_table(table.name()), deleted)


def comparable(value: Any) -> Any:
    """Return a value whose equality is that of Spark's joins: NaN equals NaN, and 0.0 equals -0.0."""
    if isinstance(value, float):
        return "nan" if value != value else value + 0.0
    if isinstance(value, dict):
        return tuple((name, comparable(inside)) for name, inside in value.items())
    if isinstance(value, list | tuple):
        return tuple(comparable(inside) for inside in value)
    return value


def as_set(rows: pa.Table) -> list[str]:
    return sorted(repr(comparable(row)) for row in rows.to_pylist())


def brute_force(steps: Sequence[Step], match: pa.Table | None) -> pa.Table:
    """Return the rows that were written and not deleted, in the new schema. PyIceberg's scan makes empty lists of null ones."""
    written = [row for step in steps for number, row in enumerate(step.rows) if number not in step.deleted]
    rows = pa.Table.from_pylist(written, schema=row_schema_of(NEW))
    if match is None:
        return rows
    wanted = {tuple(comparable(row[name]) for name in match.column_names) for row in match.to_pylist()}
    is_wanted = [tuple(comparable(row[name]) for name in match.column_names) in wanted for row in rows.to_pylist()]
    return rows.filter(pa.array(is_wanted, pa.bool_()))


@settings(max_examples=25)
@given(
    old=steps(OLD),
    new=steps(NEW),
    match=st.none() | matches(),
    small=st.sampled_from([0, 3, 1_000]),
    memory_rows=st.sampled_from([0, 3]),
    few=st.sampled_from([0, 1_000]),
)
def test_rows_are_those_that_were_written(
    old: list[Step], new: list[Step], match: pa.Table | None, small: int, memory_rows: int, few: int
) -> None:
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        folder = Path(name)
        patch.setattr(row_store_module, "SMALL_ROWS", small)
        patch.setattr(row_store_module, "_FILE_IN_MEMORY_ROWS", memory_rows)
        patch.setattr(row_index_module, "_FEW_VALUES", few)
        catalog = open_catalog(load_settings(flags={}, environ={}, folder=folder))
        table = fill(catalog, make_table(catalog, folder, OLD), old)
        table = fill(catalog, make_table(catalog, folder, NEW), new)
        files, expected = LiveFiles().of(table, None), brute_force([*old, *new], match)
        for _ in range(2):  # the second store uses the files of the first
            store = RowStore(folder / "cache", most_bytes=LARGE)
            fetched = store.fetch(table, files, match=match, places=True)
            assert as_set(fetched.drop_columns([FILE, POSITION])) == as_set(expected)
            assert fetched.schema.names[:-2] == [column.name for column in NEW]
            check_places(store, table, files, fetched)
            if match is not None:
                numbers = [(file.path, row) for file in files for row in find(store, table, file, match)]
                assert sorted(numbers) == sorted(zip(fetched[FILE].to_pylist(), fetched[POSITION].to_pylist(), strict=True))


def find(store: RowStore, table: Table, file: LiveFile, match: pa.Table) -> list[int]:
    numbers: list[int] = store.find(table, file, columns=match.column_names, values=match).to_pylist()
    assert numbers == sorted(set(numbers))
    return numbers


def check_places(store: RowStore, table: Table, files: Sequence[LiveFile], fetched: pa.Table) -> None:
    """Check that every row is the one at its place, and that no place is deleted or named twice."""
    rows = {file.path: store.rows(table, file).to_pylist() for file in files}
    gone = {file.path: set(store.deleted(table, file).to_pylist()) for file in files}
    places = [(row.pop(FILE), row.pop(POSITION), row) for row in fetched.to_pylist()]
    assert len({place[:2] for place in places}) == len(places)
    for path, number, row in places:
        assert comparable(rows[path][number]) == comparable(row)
        assert number not in gone[path]


IDS = (Column("id", Primitive("string")), Column("n", Primitive("long")))


def add(catalog: Catalog, table: Table, numbers: Sequence[int]) -> Table:
    table.append(pa.table({"id": [f"id-{number}" for number in numbers], "n": pa.array(numbers, pa.int64())}))
    return catalog.load_table(table.name())


@pytest.fixture
def ids(catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Table:
    """A table of two files of 5,000 rows and three of ten. None of them stays in memory."""
    monkeypatch.setattr(row_store_module, "_FILE_IN_MEMORY_ROWS", 0)
    table = make_table(catalog, tmp_path, IDS)
    for first, count in ((0, 5_000), (5_000, 5_000), (10_000, 10), (10_010, 10), (10_020, 10)):
        table = add(catalog, table, range(first, first + count))
    return table


def wanted(*numbers: int) -> pa.Table:
    return pa.table({"id": [f"id-{number}" for number in numbers]})


def fetch(store: RowStore, table: Table, *numbers: int) -> list[int]:
    fetched = store.fetch(table, LiveFiles().of(table, None), match=wanted(*numbers))
    return sorted(fetched["n"].to_pylist())


def fetch_one(store: RowStore, table: Table, number: int) -> list[int]:
    """Return the rows with a number, looked for only in files that can hold it."""
    first, second, *small = LiveFiles().of(table, None)
    files = [first] if number < 5_000 else [second] if number < 10_000 else small
    return sorted(store.fetch(table, files, match=wanted(number))["n"].to_pylist())


def cached(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.arrow"))


def test_rows_of_large_and_small_files_come_together(ids: Table, tmp_path: Path) -> None:
    store = RowStore(tmp_path / "cache", most_bytes=LARGE)
    assert fetch(store, ids, 3, 4_999, 5_000, 10_001, 10_029, 99_999) == [3, 4_999, 5_000, 10_001, 10_029]
    assert fetch(store, ids) == []


def test_sizes_of_a_store_are_those_of_its_tables(ids: Table, catalog: Catalog, tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    assert stored_sizes(folder) == {}
    store = RowStore(folder, most_bytes=LARGE)
    fetch(store, ids, 3)
    files, sizes = cached(folder), stored_sizes(folder)
    size = sizes[ids.metadata.table_uuid.hex]
    assert list(sizes) == [ids.metadata.table_uuid.hex]
    assert size.total == sum(file.stat().st_size for file in files)
    assert size.rows > size.indexes > 10_000 * 12, "two of the files have an index: a hash and a number for each row"
    (folder / ".half-written.inprogress").write_bytes(b"x")
    assert stored_sizes(folder) == sizes
    store.clear()
    assert stored_sizes(folder) == {}


def test_thousands_of_values_are_looked_up(ids: Table, tmp_path: Path) -> None:
    numbers = range(0, 10_030, 2)
    assert fetch(RowStore(tmp_path / "cache", most_bytes=LARGE), ids, *numbers) == list(numbers)


def test_rows_of_several_batches_are_found(ids: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.iceberg.rows.row_files.BATCH_ROWS", 1_000)
    store = RowStore(tmp_path / "cache", most_bytes=LARGE)
    numbers = [0, 999, 1_000, 1_001, 4_999, 7_500]
    assert fetch(store, ids, *numbers) == numbers


def test_projection_returns_its_columns_in_their_order(ids: Table, tmp_path: Path) -> None:
    store, files = RowStore(tmp_path / "cache", most_bytes=LARGE), LiveFiles().of(ids, None)
    match = wanted(1, 10_001)
    assert sorted(store.fetch(ids, files, columns=["n"], match=match).to_pydict()["n"]) == [1, 10_001]
    assert store.fetch(ids, files, columns=["n", "id"], places=True).column_names == ["n", "id", FILE, POSITION]
    with pytest.raises(ValueError, match="column x does not exist"):
        store.fetch(ids, files, columns=["n", "x"])
    assert store.fetch(ids, [], columns=["n"]).schema == pa.schema([pa.field("n", pa.int64())])


def test_hashes_that_collide_do_not_add_rows(ids: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pl.DataFrame, "hash_rows", lambda frame: pl.Series([7] * frame.height, dtype=pl.UInt64))
    store = RowStore(tmp_path / "cache", most_bytes=LARGE)
    assert fetch(store, ids, 3, 10_001) == [3, 10_001]


def test_index_serves_any_order_of_its_columns(ids: Table, tmp_path: Path) -> None:
    store, files = RowStore(tmp_path / "cache", most_bytes=LARGE), LiveFiles().of(ids, None)
    both = pa.table({"n": pa.array([3, 4], pa.int32()), "id": ["id-3", "id-5"]})
    assert store.fetch(ids, files, match=both)["n"].to_pylist() == [3]
    before = cached(tmp_path / "cache")
    assert store.fetch(ids, files, match=both.select(["id", "n"]))["n"].to_pylist() == [3]
    assert cached(tmp_path / "cache") == before


@pytest.mark.parametrize(
    ("match", "says"),
    [
        (pa.table({"inside": [{"a": 1}]}), "nested"),
        (pa.table({"nothing": [1]}), "does not exist"),
        (pa.table({"i": [2**40]}), "not in range"),
        (pa.table({}), "one column"),
    ],
)
def test_columns_that_cannot_be_looked_up_are_refused(catalog: Catalog, tmp_path: Path, match: pa.Table, says: str) -> None:
    table = fill(catalog, make_table(catalog, tmp_path, OLD), [Step([{"i": 1}], [])])
    with pytest.raises(ValueError, match=says):
        RowStore(tmp_path / "cache", most_bytes=LARGE).fetch(table, LiveFiles().of(table, None), match=match)


def test_bounds_spare_reading_files(ids: Table, tmp_path: Path) -> None:
    store, files = RowStore(tmp_path / "cache", most_bytes=LARGE), LiveFiles().of(ids, None)
    match = pa.table({"n": pa.array([5_001, 5_003], pa.int64())})
    assert sorted(store.fetch(ids, files, match=match)["n"].to_pylist()) == [5_001, 5_003]
    assert len(cached(tmp_path / "cache")) == 2  # the rows and the index of one file
    nothing = pa.table({"n": pa.array([None], pa.int64())})
    assert store.fetch(ids, files, match=nothing).num_rows == 0


def test_second_row_store_reuses_cached_rows(ids: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fetch(RowStore(tmp_path / "cache", most_bytes=LARGE), ids, 3)
    monkeypatch.setattr(row_store_module, "read_rows", None)
    monkeypatch.setattr(row_store_module, "build_index", None)
    assert fetch(RowStore(tmp_path / "cache", most_bytes=LARGE), ids, 4, 10_001) == [4, 10_001]


def test_rows_that_the_writer_stored_are_not_read(ids: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = RowStore(tmp_path / "cache", most_bytes=LARGE)
    for file in LiveFiles().of(ids, None):
        with pytest.raises(ValueError, match="rows, not 1"):
            store.put(ids, file.file, wanted(1).append_column("n", pa.array([1])))
        first = store.fetch(ids, [file], columns=["n"])["n"][0].as_py()
        numbers = range(first, first + file.rows)
        other = RowStore(tmp_path / "other", most_bytes=LARGE)
        other.put(ids, file.file, pa.table({"n": pa.array(numbers), "id": [f"id-{number}" for number in numbers]}))
    monkeypatch.setattr(row_store_module, "read_rows", None)
    assert fetch(RowStore(tmp_path / "other", most_bytes=LARGE), ids, 4, 10_001) == [4, 10_001]


@pytest.mark.parametrize("is_stored", [True, False])
def test_small_files_stay_in_memory(ids: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_stored: bool) -> None:
    monkeypatch.setattr(row_store_module, "_FILE_IN_MEMORY_ROWS", 10)
    store, small = RowStore(tmp_path / "cache", most_bytes=LARGE), LiveFiles().of(ids, None)[2:]
    for number, file in enumerate(small):
        rows = range(10_000 + 10 * number, 10_010 + 10 * number)
        if is_stored:
            store.put(ids, file.file, pa.table({"n": pa.array(rows), "id": [f"id-{row}" for row in rows]}))
        else:
            store.rows(ids, file)
    monkeypatch.setattr(row_store_module, "read_rows", None)
    assert sorted(store.fetch(ids, small, match=wanted(10_001, 10_029))["n"].to_pylist()) == [10_001, 10_029]
    assert cached(tmp_path / "cache") == []
    store.clear()
    with pytest.raises(TypeError):  # nothing is left: they would be read again
        store.rows(ids, small[0])


def test_small_files_that_do_not_fit_into_memory_are_read_once(
    ids: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_store_module, "_FILE_IN_MEMORY_ROWS", 10)
    monkeypatch.setattr(row_store_module, "_ROOM_BYTES", row_store_module._IN_MEMORY_BYTES + 1)
    store, small = RowStore(tmp_path / "cache", most_bytes=LARGE), LiveFiles().of(ids, None)[2:]
    for file in small:
        store.rows(ids, file)
    assert len(cached(tmp_path / "cache")) == 3
    monkeypatch.setattr(row_store_module, "read_rows", None)
    assert sorted(store.fetch(ids, small, match=wanted(10_001, 10_029))["n"].to_pylist()) == [10_001, 10_029]


@pytest.mark.parametrize("damage", ["empty", "half", "text", "other rows"])
def test_damaged_files_are_rebuilt(ids: Table, tmp_path: Path, damage: str) -> None:
    fetch(RowStore(tmp_path / "cache", most_bytes=LARGE), ids, 3)
    RowStore(tmp_path / "other", most_bytes=LARGE).rows(ids, LiveFiles().of(ids, None)[0])
    other = cached(tmp_path / "other")[0].read_bytes()
    files = [path for path in cached(tmp_path / "cache") if damage != "other rows" or path.stat().st_size < 0.9 * len(other)]
    assert len(files) == (5 if damage == "other rows" else 7)  # the rows of five files and two indexes
    for file in files:
        held = file.read_bytes()
        contents = {"empty": b"", "half": held[: len(held) // 2], "text": b"no Arrow " * 100, "other rows": other}
        file.write_bytes(contents[damage])
    store = RowStore(tmp_path / "cache", most_bytes=LARGE)
    assert fetch(store, ids, 3, 5_001, 10_001) == [3, 5_001, 10_001]


def test_deletes_of_a_later_snapshot_take_effect(
    catalog: Catalog, ids: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, read = RowStore(tmp_path / "cache", most_bytes=LARGE), []

    def counted(table: Table, path: str, deletes: Sequence[str]) -> pa.Array:
        read.append(path)
        return position_deletes.read_positions(table, path, deletes)

    monkeypatch.setattr(row_store_module, "read_positions", counted)
    large, small = (LiveFiles().of(ids, None)[number].path for number in (0, 3))
    assert fetch(store, ids, 3, 4, 10_010, 10_011) == [3, 4, 10_010, 10_011]
    table = delete_rows(catalog, ids, {large: [3], small: [0]})
    assert fetch(store, table, 3, 4, 10_010, 10_011) == [4, 10_011]
    table = delete_rows(catalog, table, {large: [3, 4]})
    assert fetch(store, table, 3, 4, 10_010, 10_011) == [10_011]
    assert len(read) == 3  # a delete file is read once
    assert store.deleted(table, LiveFiles().of(table, None)[0]).to_pylist() == [3, 4]
    everything = store.fetch(table, LiveFiles().of(table, None))["n"].to_pylist()
    assert sorted({*range(10_030)} - {*everything}) == [3, 4, 10_010]
    assert len(everything) == 10_027


def test_row_store_stays_below_its_bound(ids: Table, tmp_path: Path) -> None:
    folder, files = tmp_path / "cache", LiveFiles().of(ids, None)
    one = RowStore(tmp_path / "probe", most_bytes=LARGE)
    one.rows(ids, files[0])
    size = sum(file.stat().st_size for file in cached(tmp_path / "probe"))
    bound = int(size * 1.9)
    store = RowStore(folder, most_bytes=bound)
    for _ in range(2):
        for number in (3, 5_001, 10_001):
            assert fetch_one(store, ids, number) == [number]
            assert sum(file.stat().st_size for file in cached(folder)) <= bound


def test_files_that_exceed_the_bound_together_are_refused_before_one_is_read(ids: Table, tmp_path: Path) -> None:
    files, schema = LiveFiles().of(ids, None), ids.schema()
    bound = int(1.5 * estimate_bytes(files[0].file, schema))
    store = RowStore(tmp_path / "cache", most_bytes=bound)
    for _ in range(2):
        with pytest.raises(TooLargeError, match="the rows of"):
            store.fetch(ids, files, match=wanted(3))
        with pytest.raises(TooLargeError, match="the rows of"):
            store.fetch(ids, files)
    assert cached(tmp_path / "cache") == []
    within = {"n": [(3, 4)]}
    assert store.fetch(ids, files, between=within).num_rows == 2, "the second file can't hold such rows"
    assert store.fetch(ids, files, match=wanted(3), between=within).num_rows == 1
    assert fetch_one(store, ids, 5_003) == [5_003]


def test_files_of_a_working_set_count_once(ids: Table, tmp_path: Path) -> None:
    files, schema = LiveFiles().of(ids, None), ids.schema()
    bound = int(1.5 * estimate_bytes(files[0].file, schema))
    store = RowStore(tmp_path / "cache", most_bytes=bound)
    build = store.working_set()
    for _ in range(3):
        assert store.fetch(ids, files[:1], working_set=build).num_rows == 5_000
    assert store.fetch(ids, files[2:], working_set=build).num_rows == 30, "small files stay in memory"
    with pytest.raises(TooLargeError, match="the rows of"):
        store.fetch(ids, files[1:2], working_set=build)


@pytest.mark.parametrize("old", [False, True])
def test_estimated_rows_are_near_what_is_stored(catalog: Catalog, tmp_path: Path, old: bool) -> None:
    random = Random(1)
    table = make_table(catalog, tmp_path, OLD if old else IDS)
    if old:
        rows = [
            {name: random.choice([None, *values]) for name, values in _VALUES.items() if name != "added"} for _ in range(6_000)
        ]
        table.append(pa.Table.from_pylist(rows, schema=table.schema().as_arrow()))
    else:
        table.append(pa.table({"id": [f"{random.getrandbits(128):032x}" for _ in range(6_000)], "n": pa.array(range(6_000))}))
    table = catalog.load_table(table.name())
    (file,) = LiveFiles().of(table, None)
    RowStore(tmp_path / "cache", most_bytes=LARGE).rows(table, file)
    stored = sum(path.stat().st_size for path in cached(tmp_path / "cache"))
    assert stored / 2 < estimate_bytes(file.file, table.schema()) < stored * 3


def test_least_recently_used_rows_are_evicted(ids: Table, tmp_path: Path) -> None:
    folder, files = tmp_path / "cache", LiveFiles().of(ids, None)
    RowStore(folder, most_bytes=LARGE).rows(ids, files[0])
    (first,) = cached(folder)
    RowStore(folder, most_bytes=LARGE).rows(ids, files[1])
    (second,) = [path for path in cached(folder) if path != first]
    for age, path in enumerate((second, first)):
        os.utime(path, (age, age))
    RowStore(folder, most_bytes=LARGE).rows(ids, files[1])  # a use makes it the more recent one
    RowStore(folder, most_bytes=first.stat().st_size + second.stat().st_size).rows(ids, files[2])
    assert not first.exists()
    assert second.exists()


def test_file_that_exceeds_the_bound_is_refused(ids: Table, tmp_path: Path) -> None:
    files = LiveFiles().of(ids, None)
    store = RowStore(tmp_path / "cache", most_bytes=files[0].size + 1_000)
    for _ in range(2):
        with pytest.raises(TooLargeError, match="take more than"):
            store.rows(ids, files[0])
    store.put(ids, files[0].file, store_rows(ids, files[0], tmp_path))
    assert not [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]
    assert store.rows(ids, files[2]).num_rows == 10


def store_rows(table: Table, file: LiveFile, tmp_path: Path) -> pa.Table:
    return RowStore(tmp_path / "elsewhere", most_bytes=LARGE).rows(table, file)


def test_only_the_owner_may_read_the_cache(ids: Table, tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        fetch(RowStore(tmp_path / "cache" / "rows", most_bytes=LARGE), ids, 3)
    finally:
        os.umask(before)
    modes = {stat.S_IMODE(path.stat().st_mode) for path in cached(tmp_path / "cache")}
    folders = {stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "cache" / "rows").rglob("*") if path.is_dir()}
    assert modes == {0o600}
    assert folders | {stat.S_IMODE((tmp_path / "cache" / "rows").stat().st_mode)} == {0o700}


def test_incomplete_files_of_a_crashed_process_are_removed(ids: Table, tmp_path: Path) -> None:
    folder, files = tmp_path / "cache", LiveFiles().of(ids, None)
    RowStore(folder, most_bytes=LARGE).rows(ids, files[2])
    inside = cached(folder)[0].parent
    dead, alive = inside / ".a-1.inprogress", inside / ".b-2.inprogress"
    for path in (dead, alive):
        path.write_bytes(b"half")
    long_ago = (datetime.now() - timedelta(hours=2)).timestamp()
    os.utime(dead, (long_ago, long_ago))
    RowStore(folder, most_bytes=LARGE).rows(ids, files[3])
    assert not dead.exists()
    assert alive.exists()


def test_threads_share_a_store_that_evicts(ids: Table, tmp_path: Path) -> None:
    files = LiveFiles().of(ids, None)
    RowStore(tmp_path / "probe", most_bytes=LARGE).rows(ids, files[0])
    bound = int(cached(tmp_path / "probe")[0].stat().st_size * 2.2)
    stores = [RowStore(tmp_path / "cache", most_bytes=bound) for _ in range(2)]
    wrong: list[object] = []

    def look(store: RowStore, first: int) -> None:
        try:
            for number in range(first, 10_030, 997):
                if fetch_one(store, ids, number) != [number]:
                    wrong.append(number)
        except Exception as error:
            wrong.append(error)

    threads = [Thread(target=look, args=(stores[number % 2], number)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_rows_of_a_dropped_table_are_not_reused(catalog: Catalog, tmp_path: Path) -> None:
    store, path = RowStore(tmp_path / "cache", most_bytes=LARGE), f"file://{tmp_path}/rows.parquet"
    catalog.create_namespace("raw")
    fetched = []
    for value in (1, 2):
        pq.write_table(pa.table({"id": ["a"], "n": pa.array([value], pa.int64())}), tmp_path / "rows.parquet")
        table = catalog.create_table("raw.rows", schema=row_schema_of(IDS), location=f"file://{tmp_path}/{value}")
        table.add_files([path])
        table = catalog.load_table("raw.rows")
        fetched += store.fetch(table, LiveFiles().of(table, None))["n"].to_pylist()
        catalog.drop_table("raw.rows")
    assert fetched == [1, 2]
