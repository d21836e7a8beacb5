"""Manifests are written as by PyIceberg, with schemas that are prepared once."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg import manifest
from pyiceberg.avro import file as avro_file
from pyiceberg.avro.resolver import construct_writer, resolve_writer
from pyiceberg.manifest import ManifestListWriterV2, data_file_with_partition, manifest_entry_schema_with_data_file
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import LongType, NestedField, StringType
from pyiceberg.utils.schema_conversion import AvroSchemaConversion

from headrace.bounded_cache import BoundedCache
from headrace.iceberg.catalog.tables import open_catalog
from headrace.iceberg.pyiceberg_private import manifest_reads, manifest_writes
from headrace.iceberg.pyiceberg_private.manifest_reads import manifests_of
from headrace.iceberg.pyiceberg_private.manifest_writes import PreparedSchemaConversion, use_prepared_schemas
from headrace.settings import load_settings

_OWN = (
    AvroSchemaConversion,
    ManifestListWriterV2,
    construct_writer,
    resolve_writer,
    data_file_with_partition,
    manifest_entry_schema_with_data_file,
)


@pytest.fixture
def pyiceberg_alone(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Let PyIceberg write without the adapter until `undo` is called."""
    for function in _OWN:
        for module in (avro_file, manifest):
            if hasattr(module, function.__name__):
                monkeypatch.setattr(module, function.__name__, function)
    return monkeypatch


def words(folder: Path, *, partitioned: bool) -> Table:
    """Return a table of two snapshots."""
    catalog = open_catalog(load_settings(flags={}, environ={}, folder=folder))
    catalog.create_namespace("raw")
    schema = Schema(NestedField(1, "n", LongType()), NestedField(2, "word", StringType()))
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "word")) if partitioned else PartitionSpec()
    table = catalog.create_table("raw.words", schema=schema, partition_spec=spec, location=f"file://{folder}/words")
    rows = pa.table({"n": pa.array([1, 2], pa.int64()), "word": ["a", None]})
    table.append(rows)
    table.append(rows)
    return table


def written(table: Table) -> tuple[list[int], list[dict[str, str]]]:
    """Return how many entries each manifest has, and the headers of the Avro files."""
    snapshot = table.current_snapshot()
    assert snapshot
    manifests = snapshot.manifests(table.io)
    headers = []
    for path in (snapshot.manifest_list, *(file.manifest_path for file in manifests)):
        opened: avro_file.AvroFile[Record] = avro_file.AvroFile(table.io.new_input(path))
        with opened:
            headers.append({key: value for key, value in opened.header.meta.items() if "snapshot-id" not in key})
    return [len(manifest.fetch_manifest_entry(table.io)) for manifest in manifests], headers


@pytest.mark.parametrize("partitioned", [False, True])
def test_manifests_are_those_that_pyiceberg_writes(
    tmp_path: Path, pyiceberg_alone: pytest.MonkeyPatch, partitioned: bool
) -> None:
    assert vars(avro_file)["AvroSchemaConversion"] is AvroSchemaConversion
    wanted = written(words(tmp_path / "theirs", partitioned=partitioned))
    pyiceberg_alone.undo()
    use_prepared_schemas()
    assert vars(avro_file)["AvroSchemaConversion"] is PreparedSchemaConversion
    ours = words(tmp_path / "ours", partitioned=partitioned)
    assert written(ours) == wanted
    assert ours.scan().to_arrow().num_rows == 4


@pytest.mark.parametrize("partitioned", [False, True])
def test_remembered_lists_are_those_in_the_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, partitioned: bool) -> None:
    use_prepared_schemas()
    monkeypatch.setattr(manifest_reads, "_lists", BoundedCache(100))
    table = words(tmp_path, partitioned=partitioned)
    snapshot = table.current_snapshot()
    assert snapshot
    remembered = manifest_reads._lists.get(snapshot.manifest_list)
    assert remembered is not None
    in_files = tuple(snapshot.manifests(table.io))
    assert [entry._data for entry in remembered] == [entry._data for entry in in_files]
    assert manifests_of(snapshot, table.io) is remembered


def test_each_form_of_a_schema_is_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_prepared_schemas()
    table = words(tmp_path, partitioned=True)
    before = len(manifest_writes._forms)
    table.append(pa.table({"n": pa.array([3], pa.int64()), "word": ["b"]}))
    assert len(manifest_writes._forms) == before
