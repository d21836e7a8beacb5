"""Metadata shared between copies equals what PyIceberg writes and reads."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.serializers import FromInputFile

from headrace.iceberg.catalog.tables import open_catalog
from headrace.iceberg.pyiceberg_private.shared_metadata import SharedMetadata, share_metadata
from headrace.settings import load_settings


def test_committed_metadata_is_what_a_reader_parses(tmp_path: Path) -> None:
    settings = load_settings(flags={}, environ={}, folder=tmp_path)
    catalog = open_catalog(settings)
    catalog.create_namespace("mine")
    rows = pa.table({"id": [1, 2], "name": ["a", "b"]})
    table = catalog.create_table("mine.shared", rows.schema, properties={"format-version": "2"})
    before = catalog.load_table("mine.shared").metadata
    for _ in range(3):
        table.append(rows)
    with table.update_schema() as update:
        update.rename_column("name", "called")
    known = catalog.load_table("mine.shared")
    assert isinstance(known.metadata, SharedMetadata)
    parsed = FromInputFile.table_metadata(known.io.new_input(known.metadata_location))
    assert known.metadata.model_dump_json() == parsed.model_dump_json()
    assert open_catalog(settings).load_table("mine.shared").metadata.model_dump_json() == parsed.model_dump_json()
    assert known.scan().to_arrow().num_rows == 6
    assert not before.snapshots, "what was read before a commit stays as it was"


@pytest.mark.parametrize("deep", [True, False])
def test_copies_share_what_they_do_not_change(tmp_path: Path, deep: bool) -> None:
    catalog = open_catalog(load_settings(flags={}, environ={}, folder=tmp_path))
    catalog.create_namespace("mine")
    table = catalog.create_table("mine.shared", pa.schema([("id", pa.int64())]), properties={"format-version": "2"})
    shared = share_metadata(table.metadata)
    copy = shared.model_copy(update={"last_updated_ms": 1}, deep=deep)
    assert copy.schemas is shared.schemas
    assert (copy.last_updated_ms, shared.last_updated_ms) == (1, table.metadata.last_updated_ms)
    assert shared.model_dump_json() == table.metadata.model_dump_json()
