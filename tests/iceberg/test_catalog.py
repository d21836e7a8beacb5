"""Create tables, and widen them when their pipeline's schema grows."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.io import InputFile
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

from headrace.errors import SettingsError, SpecError
from headrace.iceberg.catalog.tables import ensure_table, load_table, open_catalog
from headrace.settings import load_settings
from headrace.spec import TableName
from tests.landing.streams import json_stream

NAME = TableName("raw", "things")


def ensure(catalog: Catalog, folder: Path, ddl: str) -> Table:
    return ensure_table(catalog, NAME, columns=json_stream(ddl).columns, location=f"file://{folder}/things")


def test_ensure_table_creates_a_table_once(catalog: Catalog, tmp_path: Path) -> None:
    assert load_table(catalog, NAME) is None
    table = ensure(catalog, tmp_path, "id INT NOT NULL, s STRUCT<a: STRING>")
    again = ensure(catalog, tmp_path, "id INT NOT NULL, s STRUCT<a: STRING>")
    assert table.metadata.table_uuid == again.metadata.table_uuid
    assert table.metadata_location == again.metadata_location, "nothing is committed where nothing changes"
    assert table.properties["write.parquet.compression-codec"] == "zstd"
    assert table.metadata.format_version == 2


def test_ensure_table_appends_columns_and_drops_none(catalog: Catalog, tmp_path: Path) -> None:
    ensure(catalog, tmp_path, "id INT, old STRING, s STRUCT<a: STRING>")
    table = ensure(catalog, tmp_path, "new DATE, id BIGINT, s STRUCT<b: INT, a: STRING>")
    types = {field.name: str(field.field_type) for field in table.schema().fields}
    assert list(types) == ["id", "old", "s", "new"]
    assert (types["id"], types["new"], types["old"]) == ("long", "date", "string")
    assert str(types["s"]).index(" a: ") < str(types["s"]).index(" b: ")


def test_ensure_table_makes_unlisted_columns_optional(catalog: Catalog, tmp_path: Path) -> None:
    ensure(catalog, tmp_path, "id INT NOT NULL, gone STRING NOT NULL, s STRUCT<a: INT NOT NULL, b: INT>")
    table = ensure(catalog, tmp_path, "id INT NOT NULL, s STRUCT<b: INT>")
    schema = table.schema()
    assert [schema.find_field(name).required for name in ("id", "gone", "s.a")] == [True, False, False]


def test_ensure_table_makes_relaxed_columns_optional(catalog: Catalog, tmp_path: Path) -> None:
    ensure(catalog, tmp_path, "id INT NOT NULL")
    assert not ensure(catalog, tmp_path, "id INT").schema().find_field("id").required


def test_ensure_table_adds_required_columns_as_optional(catalog: Catalog, tmp_path: Path) -> None:
    """Rows that are there already have no value for it."""
    ensure(catalog, tmp_path, "id INT")
    assert not ensure(catalog, tmp_path, "id INT, later STRING NOT NULL").schema().find_field("later").required


@pytest.mark.parametrize(
    ("before", "after"), [("v BIGINT", "v INT"), ("v DOUBLE", "v FLOAT"), ("v DECIMAL(9,2)", "v DECIMAL(5,2)")]
)
def test_ensure_table_never_narrows_a_type(catalog: Catalog, tmp_path: Path, before: str, after: str) -> None:
    table = ensure(catalog, tmp_path, before)
    assert ensure(catalog, tmp_path, after).metadata_location == table.metadata_location


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("id INT", "id STRING"),
        ("v DECIMAL(9,2)", "v DECIMAL(9,3)"),
        ("s STRING", "s ARRAY<STRING>"),
        ("s STRUCT<a: INT>", "s INT"),
    ],
)
def test_ensure_table_rejects_incompatible_types(catalog: Catalog, tmp_path: Path, before: str, after: str) -> None:
    table = ensure(catalog, tmp_path, before)
    with pytest.raises(SpecError, match=r"incompatible schema change of table raw\.things") as raised:
        ensure(catalog, tmp_path, after)
    assert "can only widen" in raised.value.next_step
    assert catalog.load_table(str(NAME)).metadata_location == table.metadata_location


def test_open_catalog_in_two_applications_at_once(tmp_path: Path) -> None:
    """Each has its own catalog on one database; both find the same table."""

    def start(number: int) -> str:
        catalog = open_catalog(load_settings(flags={}, environ={}, folder=tmp_path))
        return str(ensure(catalog, tmp_path, "id INT").metadata.table_uuid)

    with ThreadPoolExecutor(4) as pool:
        assert len(set(pool.map(start, range(4)))) == 1


def test_metadata_is_parsed_once_and_never_stale(catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[str] = []
    parse = FromInputFile.table_metadata

    def counted(file: InputFile, **options: Any) -> TableMetadata:
        parsed.append(file.location)
        return parse(file, **options)

    monkeypatch.setattr(FromInputFile, "table_metadata", counted)
    other = open_catalog(load_settings(flags={}, environ={}, folder=tmp_path))
    table = ensure(other, tmp_path, "id INT")
    parsed.clear()
    for _ in range(3):
        assert other.load_table(table.name()).metadata_location == table.metadata_location
    assert len(parsed) <= 1
    again = open_catalog(load_settings(flags={}, environ={}, folder=tmp_path)).load_table(table.name())
    again.transaction().set_properties({"by": "another"}).commit_transaction()
    assert other.load_table(table.name()).properties["by"] == "another"
    assert other.load_table(table.name()).metadata_location == again.metadata_location
    other.drop_table(table.name())
    assert ensure(other, tmp_path / "new", "name STRING").schema().column_names == ["name"]
    assert other.load_table(table.name()).metadata.table_uuid != table.metadata.table_uuid


@pytest.mark.parametrize(
    ("kind", "uri", "package"),
    [("glue", "", "boto3"), ("hive", "thrift://metastore:9083", "thrift")],
)
def test_missing_client_of_a_catalog_names_its_extra(
    kind: str, uri: str, package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == package or name == f"pyiceberg.catalog.{kind}"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    s3 = {"HEADRACE_WAREHOUSE": "s3://lake/tables", "AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret"}
    environ = {**s3, "HEADRACE_CATALOG_TYPE": kind, **({"HEADRACE_CATALOG_URI": uri} if uri else {})}
    with pytest.raises(SettingsError) as raised:
        open_catalog(load_settings(flags={}, environ=environ, folder=tmp_path))
    assert str(raised.value) == (
        f"catalog.type: a {kind} catalog needs the package {package}, which is not installed\n"
        f"Run: pip install 'headrace[{kind}]'"
    )
