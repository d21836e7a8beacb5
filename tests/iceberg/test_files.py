"""Data files: layout, field ids, metrics, and compatibility with other readers."""

from __future__ import annotations

from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.catalog import Catalog
from pyiceberg.conversions import from_bytes
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

from headrace.iceberg.catalog.tables import ensure_table
from headrace.iceberg.commits.append import append_checkpoint
from headrace.iceberg.files import write as files_module
from headrace.iceberg.files.storage import local_path
from headrace.iceberg.files.write import TableFiles, TableFormat
from headrace.iceberg.ledgers.landing import Ledger
from headrace.iceberg.schema.columns import iceberg_schema, partition_spec
from headrace.serving.sql.query import run_query
from headrace.spec.model.pipeline import TableName, Transform
from headrace.spec.model.types import Column, Primitive
from tests.landing.streams import json_stream

UTC = timezone.utc
COLUMNS = (
    Column("at", Primitive("timestamp")),
    Column("wall", Primitive("timestamp_ntz")),
    Column("date", Primitive("date")),
    Column("id", Primitive("long")),
    Column("name", Primitive("string")),
)


def format_of(*partition_by: Transform, columns: tuple[Column, ...] = COLUMNS) -> TableFormat:
    schema = iceberg_schema(columns)
    return TableFormat(schema, partition_spec(partition_by, schema))


def write(folder: Path, table_format: TableFormat, *rows: dict[str, Any]) -> tuple[DataFile, ...]:
    files = TableFiles(table_format, folder=f"file://{folder}", name="1-0-x")
    files.write(pa.Table.from_pylist([dict(row) for row in rows], schema=table_format.arrow_schema))
    return tuple(files.close())


def folders(folder: Path, files: tuple[DataFile, ...]) -> list[str]:
    return sorted(str(path.parent.relative_to(folder)) for file in files if (path := local_path(file.file_path)))


MOMENT = datetime(2026, 2, 3, 4, 5, 6, 7, tzinfo=UTC)
EARLY = datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)


@pytest.mark.parametrize(
    ("transform", "row", "path"),
    [
        (Transform("hours", "at"), {"at": MOMENT}, "year=2026/month=02/day=03/hour=04"),
        (Transform("days", "at"), {"at": MOMENT}, "year=2026/month=02/day=03"),
        (Transform("months", "at"), {"at": MOMENT}, "year=2026/month=02"),
        (Transform("years", "at"), {"at": MOMENT}, "year=2026"),
        (Transform("hours", "at"), {"at": EARLY}, "year=1969/month=12/day=31/hour=23"),
        (Transform("days", "at"), {"at": EARLY}, "year=1969/month=12/day=31"),
        (Transform("months", "at"), {"at": EARLY}, "year=1969/month=12"),
        (Transform("years", "at"), {"at": EARLY}, "year=1969"),
        (Transform("hours", "at"), {"at": datetime(1, 1, 1, tzinfo=UTC)}, "year=0001/month=01/day=01/hour=00"),
        (Transform("hours", "at"), {"at": datetime(9999, 12, 31, 23, tzinfo=UTC)}, "year=9999/month=12/day=31/hour=23"),
        (Transform("hours", "wall"), {"wall": MOMENT.replace(tzinfo=None)}, "year=2026/month=02/day=03/hour=04"),
        (Transform("days", "date"), {"date": date(1960, 2, 29)}, "year=1960/month=02/day=29"),
        (Transform("months", "date"), {"date": date(1969, 12, 31)}, "year=1969/month=12"),
        (Transform("years", "date"), {"date": date(1, 1, 1)}, "year=0001"),
        (Transform("hours", "at"), {"at": None}, "at_hour=null"),
        (Transform("identity", "name"), {"name": "a"}, "name=a"),
        (Transform("identity", "name"), {"name": "a/b=c d"}, "name=a/b=c d"),
        (Transform("identity", "name"), {"name": None}, "name=null"),
        (Transform("identity", "date"), {"date": date(2026, 2, 3)}, "date=2026-02-03"),
        (Transform("truncate", "name", 3), {"name": "abcdef"}, "name_trunc=abc"),
        (Transform("truncate", "id", 10), {"id": -1}, "id_trunc=-10"),
        (Transform("bucket", "id", 16), {"id": 34}, "id_bucket=3"),
    ],
)
def test_partitions_are_folders(tmp_path: Path, transform: Transform, row: dict[str, Any], path: str) -> None:
    files = write(tmp_path, format_of(transform), row)
    assert [unquote(folder.replace("+", " ")) for folder in folders(tmp_path, files)] == [path]
    assert [file.record_count for file in files] == [1]


@pytest.mark.parametrize("text", ["x" * 5_000, "é♥" * 500])
def test_partition_value_longer_than_a_file_name_is_written(tmp_path: Path, text: str) -> None:
    files = write(tmp_path, format_of(Transform("identity", "name")), {"name": text}, {"name": f"{text}!"})
    assert sorted(file.partition[0] for file in files) == [text, f"{text}!"]
    assert len(set(folders(tmp_path, files))) == 2


def test_two_partition_fields_are_written_as_iceberg_writes_them(tmp_path: Path) -> None:
    table_format = format_of(Transform("days", "at"), Transform("identity", "name"))
    files = write(tmp_path, table_format, {"at": MOMENT, "name": "x"}, {"at": MOMENT, "name": None}, {"at": None, "name": "x"})
    assert folders(tmp_path, files) == ["at_day=2026-02-03/name=null", "at_day=2026-02-03/name=x", "at_day=null/name=x"]


moments = st.none() | st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31, 23), timezones=st.just(UTC))
TRANSFORMS = [
    Transform("hours", "at"),
    Transform("days", "at"),
    Transform("months", "at"),
    Transform("years", "at"),
    Transform("bucket", "at", 8),
    Transform("identity", "at"),
    Transform("bucket", "name", 5),
    Transform("truncate", "name", 2),
    Transform("truncate", "id", 100),
]


@given(
    st.lists(
        st.tuples(moments, st.none() | st.integers(-(2**62), 2**62), st.none() | st.text(max_size=4)), min_size=1, max_size=20
    ),
    st.sampled_from(TRANSFORMS),
)
def test_each_row_is_in_the_partition_that_iceberg_says(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[Any, Any, Any]], transform: Transform
) -> None:
    folder = tmp_path_factory.mktemp("files")
    table_format = format_of(transform)
    dicts = [{"at": at, "id": number, "name": name} for at, number, name in rows]
    files = write(folder, table_format, *dicts)
    source = table_format.schema.find_field(table_format.spec.fields[0].source_id)
    by_iceberg = table_format.spec.fields[0].transform.transform(source.field_type)
    stored_rows = []
    for file in files:
        path = local_path(file.file_path)
        assert path
        table = pq.ParquetFile(path).read()
        stored_rows += table.select(["at", "id", "name"]).to_pylist()
        for value in table[source.name].to_pylist():
            literal = value
            if isinstance(value, datetime):
                literal = (value - datetime(1970, 1, 1, tzinfo=UTC)) // (datetime.resolution)
            wanted = by_iceberg(literal)
            stored = file.partition[0]
            if isinstance(stored, date) and not isinstance(stored, datetime):
                stored = (stored - date(1970, 1, 1)).days
            if isinstance(stored, datetime):
                stored = (stored - datetime(1970, 1, 1, tzinfo=UTC)) // datetime.resolution
            assert stored == wanted
    assert sorted(stored_rows, key=repr) == sorted(dicts, key=repr)
    assert len({file.partition[0] for file in files}) == len(files), "one file a partition"


def test_parquet_has_field_ids_at_every_depth(tmp_path: Path) -> None:
    columns = json_stream("id INT, s STRUCT<a: STRING, l: ARRAY<STRUCT<b: DATE>>>, m MAP<STRING, DECIMAL(9,2)>").columns
    table_format = format_of(columns=columns)
    row = {"id": 1, "s": {"a": "x", "l": [{"b": date(2026, 1, 1)}]}, "m": [("k", Decimal("1.50"))]}
    (file,) = write(tmp_path, table_format, row)
    path = local_path(file.file_path)
    assert path

    def ids(fields: Any) -> list[int]:
        field_ids: list[int] = []
        for field in fields:
            field_ids.append(int(field.metadata[b"PARQUET:field_id"]))
            if pa.types.is_struct(field.type):
                field_ids += ids(field.type)
            elif pa.types.is_map(field.type):
                field_ids += ids([field.type.key_field, field.type.item_field])
            elif pa.types.is_list(field.type) or pa.types.is_large_list(field.type):
                field_ids += ids([field.type.value_field])
        return field_ids

    assert sorted(ids(pq.read_schema(path))) == sorted(
        field_id for field_id in table_format.schema._lazy_id_to_field if field_id
    )


def test_metrics_are_those_of_the_rows(tmp_path: Path) -> None:
    table_format = format_of()
    rows = [{"id": number, "at": MOMENT.replace(second=number)} for number in (5, 1, 3)] + [{"id": None, "at": None}]
    (file,) = write(tmp_path, table_format, *rows)
    number, at = (table_format.schema.find_field(name) for name in ("id", "at"))
    read: Any = from_bytes
    assert file.record_count == 4
    path = local_path(file.file_path)
    assert path
    assert file.file_size_in_bytes == path.stat().st_size
    assert file.null_value_counts[number.field_id] == 1
    assert read(number.field_type, file.lower_bounds[number.field_id]) == 1
    assert read(number.field_type, file.upper_bounds[number.field_id]) == 5
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    latest = (MOMENT.replace(second=5) - epoch) // datetime.resolution
    assert read(at.field_type, file.upper_bounds[at.field_id]) == latest


def test_memory_is_bounded_by_open_files_not_by_partitions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files_module, "_OPEN_FILES", 3)
    table_format = format_of(Transform("identity", "id"))
    files = TableFiles(table_format, folder=f"file://{tmp_path}", name="n")
    for _ in range(2):
        files.write(pa.Table.from_pylist([{"id": number} for number in range(10)], schema=table_format.arrow_schema))
        assert len(files._open) <= 3
    done = files.close()
    assert sum(file.record_count for file in done) == 20
    assert len({file.file_path for file in done}) == len(done)


@pytest.mark.parametrize("fields", [(), (Transform("identity", "id"),)])
def test_no_rows_make_no_file(fields: tuple[Transform, ...], tmp_path: Path) -> None:
    table_format = format_of(*fields)
    files = TableFiles(table_format, folder=f"file://{tmp_path}", name="n")
    files.write(table_format.arrow_schema.empty_table())
    assert files.close() == []
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_row_groups_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files_module, "ROW_GROUP_ROWS", 100)
    table_format = format_of()
    files = TableFiles(table_format, folder=f"file://{tmp_path}", name="n")
    for start in range(0, 1000, 70):
        rows = [{"id": number} for number in range(start, min(start + 70, 1000))]
        files.write(pa.Table.from_pylist(rows, schema=table_format.arrow_schema))
    (file,) = files.close()
    path = local_path(file.file_path)
    assert path
    parquet = pq.ParquetFile(path)
    assert parquet.read()["id"].to_pylist() == list(range(1000))
    assert max(parquet.metadata.row_group(index).num_rows for index in range(parquet.num_row_groups)) <= 100


def test_aborted_batch_leaves_no_file_in_progress(tmp_path: Path) -> None:
    table_format = format_of(Transform("identity", "id"))
    files = TableFiles(table_format, folder=f"file://{tmp_path}", name="n")
    files.write(pa.Table.from_pylist([{"id": 1}, {"id": 2}], schema=table_format.arrow_schema))
    assert list(tmp_path.rglob("*.inprogress"))
    assert not list(tmp_path.rglob("*.parquet"))
    files.abort()
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


@pytest.fixture
def readable(catalog: Catalog, tmp_path: Path) -> Table:
    """A table with three partitions, one of them null, one before 1970."""
    table = ensure_table(
        catalog,
        TableName("raw", "times"),
        columns=COLUMNS,
        partition_by=(Transform("hours", "at"),),
        location=f"file://{tmp_path}/t",
    )
    files = write(
        tmp_path / "t" / "output",
        TableFormat(table.schema(), table.spec()),
        *({"at": MOMENT, "id": number, "name": "é"} for number in range(5)),
        {"at": EARLY, "id": 5},
        {"at": None, "id": 6},
    )
    return append_checkpoint(catalog, table, files=files, planned=Ledger(), new=Ledger(1, {0: 7}, "me"))


def test_plain_arrow_reads_the_folder(readable: Table, tmp_path: Path) -> None:
    stored = ds.dataset(tmp_path / "t" / "output", format="parquet").to_table()
    assert sorted(stored["id"].to_pylist()) == list(range(7))
    times = ds.dataset(tmp_path / "t" / "output" / "year=2026", format="parquet", partitioning="hive").to_table()
    assert set(times["month"].to_pylist()) == {2}
    assert set(times["hour"].to_pylist()) == {4}


def test_plain_duckdb_reads_the_folder(readable: Table, tmp_path: Path) -> None:
    sql = f"SELECT count(*), min(id), max(name) FROM read_parquet('{tmp_path}/t/output/**/*.parquet')"
    assert duckdb.sql(sql).fetchall() == [(7, 0, "é")]


def test_duckdb_reads_the_iceberg_table(readable: Table, catalog: Catalog) -> None:
    answer = run_query(catalog, """SELECT count(*) AS n, min("at") AS first FROM raw.times WHERE "at" < '2000-01-01'""")
    assert answer.to_pylist() == [{"n": 1, "first": EARLY}]
    assert run_query(catalog, 'SELECT id FROM raw.times WHERE "at" IS NULL').to_pylist() == [{"id": 6}]


def test_pyiceberg_prunes_and_reads(readable: Table) -> None:
    scan = readable.scan(row_filter="at >= '2026-01-01T00:00:00+00:00'")
    assert len(list(scan.plan_files())) == 1, "the partition says what need not be read"
    assert sorted(scan.to_arrow()["id"].to_pylist()) == [0, 1, 2, 3, 4]
    assert readable.scan(row_filter="id = 5").to_arrow()["at"].to_pylist() == [EARLY]
