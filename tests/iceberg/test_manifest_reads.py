"""Manifests are read as by PyIceberg, with schemas that are resolved once."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg import manifest
from pyiceberg.avro import file as avro_file
from pyiceberg.avro.file import AvroFile
from pyiceberg.table import Table
from pyiceberg.typedef import Record

from headrace.iceberg.catalog.tables import open_catalog
from headrace.iceberg.pyiceberg_private import manifest_reads
from headrace.iceberg.pyiceberg_private.manifest_reads import ResolvedAvroFile, manifests_of, use_resolved_schemas
from headrace.settings import load_settings


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """A table of two snapshots."""
    catalog = open_catalog(load_settings(flags={}, environ={}, folder=tmp_path))
    catalog.create_namespace("raw")
    rows = pa.table({"n": pa.array([1, 2], pa.int64()), "word": ["a", None]})
    table = catalog.create_table("raw.words", schema=rows.schema, location=f"file://{tmp_path}/words")
    table.append(rows)
    table.append(rows)
    return table


def read_all(table: Table) -> list[object]:
    snapshot = table.current_snapshot()
    assert snapshot
    manifests = snapshot.manifests(table.io)
    return [(plain(manifest), [plain(entry) for entry in manifest.fetch_manifest_entry(table.io)]) for manifest in manifests]


def plain(value: object) -> object:
    """Return a record as lists and dictionaries; PyIceberg's dictionaries are read when they are first used."""
    if isinstance(value, Record):
        return [type(value).__name__, *map(plain, value._data)]
    return dict(value) if isinstance(value, Mapping) else value


def test_entries_are_those_that_pyiceberg_reads(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    manifest.clear_manifest_cache()
    with monkeypatch.context() as patch:
        patch.setattr(manifest, "AvroFile", AvroFile)
        wanted = read_all(table)
    for _ in range(2):
        manifest.clear_manifest_cache()
        use_resolved_schemas()
        assert vars(manifest)["AvroFile"] is ResolvedAvroFile
        assert read_all(table) == wanted


def test_schema_is_resolved_once(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    use_resolved_schemas()
    wanted = read_all(table)
    monkeypatch.setattr(manifest_reads, "resolve_reader", None)
    monkeypatch.setattr(avro_file.AvroFileHeader, "get_schema", None)
    assert read_all(table) == wanted


def test_manifest_list_is_read_once(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot = table.current_snapshot()
    assert snapshot
    manifests = manifests_of(snapshot, table.io)
    assert len(manifests) == 2
    monkeypatch.setattr(manifest, "read_manifest_list", None)
    assert manifests_of(snapshot, table.io) is manifests
