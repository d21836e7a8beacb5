"""Contract tests of PyIceberg: every private name and behaviour that headrace/iceberg/pyiceberg_private depends on.

PyIceberg may change them in any release. A failure says which module to adapt, and what is broken until then. If pytest stops
at an ImportError of conftest.py, run this file with `--noconftest`: the tests of names and parameters need no fixture.
"""

from __future__ import annotations

import importlib
import inspect
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table
from pyiceberg.types import StringType

import headrace
from headrace.iceberg.pyiceberg_private.metadata_files import IdempotentDeletes, with_idempotent_deletes
from headrace.iceberg.pyiceberg_private.planned_schema import planned_schema
from headrace.iceberg.pyiceberg_private.transactions import TableTransaction, staged_requirements, staged_updates
from tests.iceberg.private_uses import private_uses


@dataclass(frozen=True)
class Contract:
    """Names of PyIceberg that a module of the adapter uses or overrides, and what they are for.

    `owner` is a module, or a class as `module:Class`.
    """

    owner: str
    names: tuple[str, ...]
    module: str
    purpose: str


CONTRACTS = (
    Contract(
        "pyiceberg.table:Transaction",
        ("_table", "_updates", "_requirements", "table_metadata", "_stage", "_apply", "_register_snapshot_producer"),
        "transactions.py",
        "landing, small builds and purges commit what they staged",
    ),
    Contract("pyiceberg.table.update.snapshot", ("_SnapshotProducer",), "live_snapshot.py", "purges write live files alone"),
    Contract(
        "pyiceberg.table.update.snapshot:_SnapshotProducer",
        (
            *("_transaction", "_io", "_operation", "_compression", "_snapshot_id"),
            *("_manifests", "_summary", "_deleted_entries", "_existing_manifests"),
            *("new_manifest_writer", "new_manifest_output", "fetch_manifest_entry", "spec", "schema", "snapshot_id", "commit"),
        ),
        "row_delta_snapshot.py",
        "landing and small builds write snapshots with position deletes",
    ),
    Contract(
        "pyiceberg.table.update.snapshot", ("_ManifestMergeManager",), "row_delta_snapshot.py", "small manifests are merged"
    ),
    Contract(
        "pyiceberg.table.update.snapshot:_ManifestMergeManager",
        ("merge_manifests", "_snapshot_producer"),
        "row_delta_snapshot.py",
        "small manifests are merged",
    ),
    Contract(
        "pyiceberg.table.snapshots:SnapshotSummaryCollector",
        ("add_file", "remove_file", "build"),
        "row_delta_snapshot.py",
        "snapshots have summaries",
    ),
    Contract(
        "pyiceberg.manifest:ManifestWriterV2",
        ("_meta", "content", "existing", "delete", "add", "to_manifest_file"),
        "delete_manifests.py",
        "manifests of delete files are written",
    ),
    Contract(
        "pyiceberg.manifest",
        ("data_file_with_partition", "manifest_entry_schema_with_data_file", "ManifestListWriterV2"),
        "manifest_writes.py",
        "the schemas of written manifests are prepared once",
    ),
    Contract(
        "pyiceberg.avro.file",
        ("AvroSchemaConversion", "construct_writer", "resolve_writer"),
        "manifest_writes.py",
        "the schemas of written manifests are prepared once",
    ),
    Contract(
        "pyiceberg.utils.schema_conversion:AvroSchemaConversion",
        ("iceberg_to_avro",),
        "manifest_writes.py",
        "the schemas of written manifests are prepared once",
    ),
    Contract(
        "pyiceberg.manifest:ManifestListWriterV2",
        ("_writer", "_output_file", "add_manifests", "prepare_manifest"),
        "manifest_writes.py",
        "written manifest lists are not read back",
    ),
    Contract("pyiceberg.manifest", ("AvroFile",), "manifest_reads.py", "the schemas of read manifests are resolved once"),
    Contract("pyiceberg.avro.file", ("_SCHEMA_KEY",), "manifest_reads.py", "the schemas of read manifests are resolved once"),
    Contract(
        "pyiceberg.avro.file:AvroFile",
        ("_read_header", "__enter__", "__exit__", "__next__", "input_file", "read_schema", "read_types", "read_enums"),
        "manifest_reads.py",
        "the schemas of read manifests are resolved once",
    ),
    Contract("pyiceberg.catalog:Catalog", ("_delete_old_metadata",), "metadata_files.py", "commits delete old metadata files"),
    Contract(
        "pyiceberg.catalog.sql:SqlCatalog",
        ("_update_and_stage_table", "_write_metadata", "_iceberg_type_filter", "_load_file_io"),
        "sql_catalog.py",
        "tables of a catalog in a database are loaded and committed",
    ),
    Contract(
        "pyiceberg.catalog.rest:RestCatalog",
        ("_create_session", "_create_legacy_oauth2_auth_manager", "_delete_old_metadata"),
        "bounded_rest.py",
        "requests to a REST catalog end, and old metadata is left to its server",
    ),
    Contract("pyiceberg.table.update.schema:UpdateSchema", ("_apply",), "planned_schema.py", "widenings are previewed"),
    Contract(
        "pyiceberg.table.metadata:TableMetadataV2",
        ("model_copy", "model_construct", "model_fields", "model_fields_set", "snapshot_by_id"),
        "shared_metadata.py",
        "commits don't copy all snapshots",
    ),
)

SIGNATURES = {
    "pyiceberg.table:Transaction.__init__": "self table autocommit",
    "pyiceberg.table.update.snapshot:_SnapshotProducer.__init__": (
        "self operation transaction io commit_uuid snapshot_properties branch"
    ),
    "pyiceberg.table.update.snapshot:_SnapshotProducer._summary": "self snapshot_properties",
    "pyiceberg.table.update.snapshot:_ManifestMergeManager.__init__": (
        "self target_size_bytes min_count_to_merge merge_enabled snapshot_producer"
    ),
    "pyiceberg.manifest:ManifestWriterV2.__init__": "self spec schema output_file snapshot_id avro_compression",
    "pyiceberg.manifest:ManifestListWriter.add_manifests": "self manifest_files",
    "pyiceberg.manifest:data_file_with_partition": "partition_type format_version",
    "pyiceberg.manifest:manifest_entry_schema_with_data_file": "format_version data_file",
    "pyiceberg.avro.resolver:resolve_writer": "record_schema file_schema",
    "pyiceberg.avro.resolver:construct_writer": "file_schema",
    "pyiceberg.avro.resolver:resolve_reader": "file_schema read_schema read_types read_enums",
    "pyiceberg.utils.schema_conversion:AvroSchemaConversion.iceberg_to_avro": "self schema schema_name",
    "pyiceberg.avro.file:AvroFile.__init__": "self input_file read_schema read_types read_enums",
    "pyiceberg.catalog:Catalog._delete_old_metadata": "io base metadata",
    "pyiceberg.catalog:Catalog._load_file_io": "self properties location",
    "pyiceberg.catalog.sql:SqlCatalog._update_and_stage_table": "self current_table table_identifier requirements updates",
    "pyiceberg.catalog.sql:SqlCatalog._write_metadata": "metadata io metadata_path",
    "pyiceberg.catalog.sql:SqlCatalog._iceberg_type_filter": "self",
    "pyiceberg.catalog.rest:RestCatalog._create_session": "self",
    "pyiceberg.catalog.rest:RestCatalog._create_legacy_oauth2_auth_manager": "self session",
    "pyiceberg.table.update.schema:UpdateSchema._apply": "self",
    "pyiceberg.table.metadata:TableMetadataV2.snapshot_by_id": "self snapshot_id",
}
"""The parameters of the functions that the adapter calls, overrides or replaces."""

SOURCES = {
    "pyiceberg.table.update.snapshot:_SnapshotProducer._commit": (
        "self._manifests()",
        "self._summary(self.snapshot_properties)",
    ),
    "pyiceberg.table.update.snapshot:_SnapshotProducer._manifests": ("self._deleted_entries()", "self._existing_manifests"),
    "pyiceberg.manifest:ManifestWriter.new_writer": ("metadata=self._meta",),
    "pyiceberg.manifest:ManifestWriter.to_manifest_file": ("content=self.content()",),
    "pyiceberg.manifest:ManifestWriter._with_partition": ("data_file_with_partition(", "manifest_entry_schema_with_data_file("),
    "pyiceberg.manifest:write_manifest_list": ("ManifestListWriterV2(",),
    "pyiceberg.manifest:ManifestListWriter.add_manifests": ("self._writer.write_block(", "self.prepare_manifest("),
    "pyiceberg.avro.file:AvroOutputFile": (
        "AvroSchemaConversion().iceberg_to_avro(self.file_schema, schema_name=self.schema_name)",
        "resolve_writer(record_schema=record_schema, file_schema=self.file_schema)",
    ),
    "pyiceberg.manifest:read_manifest_list": ("AvroFile[",),
    "pyiceberg.manifest:ManifestFile.fetch_manifest_entry": ("AvroFile[",),
    "pyiceberg.table:Table._do_commit": ("self.catalog._delete_old_metadata(self.io, self.metadata, response.metadata)",),
    "pyiceberg.catalog.sql:SqlCatalog.commit_table": (
        "self._update_and_stage_table(current_table, table.name(), requirements, updates)",
        "self._write_metadata(",
    ),
    "pyiceberg.catalog.rest:RestCatalog.__init__": ("self._create_session()",),
    "pyiceberg.catalog.rest:RestCatalog._fetch_config": ("self._create_session()",),
    "pyiceberg.catalog.rest:RestCatalog._create_session": ("self._create_legacy_oauth2_auth_manager(session)",),
    "pyiceberg.table.update:update_table_metadata": ("new_metadata.model_copy(deep=True)",),
}
"""The calls in PyIceberg's own code that reach what the adapter overrides or replaces."""

_ADAPT = "adapt headrace/iceberg/pyiceberg_private"


def find(path: str) -> Any:
    """Return a module, or what `module:name` or `module:Class.name` names; None where it is missing."""
    module, _, names = path.partition(":")
    owner: Any = importlib.import_module(module)
    for name in names.split(".") if names else ():
        owner = getattr(owner, name, None)
    return owner


def has(owner: Any, name: str) -> bool:
    """Return whether a module or class has a name, or declares it for its instances."""
    bases = inspect.getmro(owner) if inspect.isclass(owner) else ()
    return hasattr(owner, name) or any(name in inspect.get_annotations(base) for base in bases)


@pytest.mark.parametrize("contract", CONTRACTS, ids=lambda contract: f"{contract.module}-{contract.owner}")
def test_pyiceberg_has_the_names_that_the_adapter_uses(contract: Contract) -> None:
    owner = find(contract.owner)
    assert owner is not None, f"PyIceberg has no {contract.owner}: {_ADAPT}/{contract.module} ({contract.purpose})"
    lost = [name for name in contract.names if not has(owner, name)]
    assert not lost, f"PyIceberg's {contract.owner} has lost {lost}: {_ADAPT}/{contract.module} ({contract.purpose})"


@pytest.mark.parametrize("function", SIGNATURES)
def test_pyiceberg_functions_have_the_parameters_that_the_adapter_passes(function: str) -> None:
    target = find(function)
    assert target is not None, f"PyIceberg has no {function}: {_ADAPT}"
    actual, expected = list(inspect.signature(target).parameters), SIGNATURES[function].split()
    assert actual == expected, f"PyIceberg's {function} takes {actual}, not {expected}: {_ADAPT}"


@pytest.mark.parametrize("function", SOURCES)
def test_pyiceberg_calls_what_the_adapter_overrides(function: str) -> None:
    target = find(function)
    assert target is not None, f"PyIceberg has no {function}: {_ADAPT}"
    source = inspect.getsource(target)
    lost = [text for text in SOURCES[function] if text not in source]
    assert not lost, f"PyIceberg's {function} no longer says {lost}, so an override has no effect: {_ADAPT}"


def test_every_private_name_of_the_adapter_is_pinned() -> None:
    pinned = {name for contract in CONTRACTS for name in contract.names}
    owners = {contract.owner.replace(":", ".") for contract in CONTRACTS}
    root = Path(headrace.__file__).parent
    uses = [use for use in private_uses(root) if ".pyiceberg_private." in use.module]
    assert uses, "the adapter was not scanned"
    missing = [str(use) for use in uses if use.name not in pinned | owners]
    assert not missing, f"pin these in CONTRACTS: {missing}"


def test_merging_asks_a_snapshot_only_for_what_the_adapter_passes() -> None:
    source = inspect.getsource(find("pyiceberg.table.update.snapshot:_ManifestMergeManager"))
    actual = set(re.findall(r"self\._snapshot_producer\.(\w+)", source))
    expected = {"snapshot_id", "spec", "fetch_manifest_entry", "new_manifest_writer"}
    assert actual == expected, f"PyIceberg merges with {actual}: {_ADAPT}/row_delta_snapshot.py (_DataManifests)"


def test_transaction_holds_its_updates_until_it_is_committed(catalog: Catalog, table: Table) -> None:
    transaction = TableTransaction(table)
    assert transaction.table_metadata is table.metadata, "it copies metadata before anything is staged"
    assert (staged_updates(transaction), staged_requirements(transaction)) == ((), ())
    transaction.set_properties({"colour": "red"})
    assert [type(update).__name__ for update in staged_updates(transaction)] == ["SetPropertiesUpdate"]
    assert transaction.table_metadata.properties["colour"] == "red"
    assert "colour" not in catalog.load_table("raw.numbers").properties
    assert transaction.commit_once(catalog).properties["colour"] == "red"
    assert catalog.load_table("raw.numbers").properties["colour"] == "red"


def test_planned_schema_is_not_committed(catalog: Catalog, table: Table) -> None:
    update = table.transaction().update_schema().add_column("word", StringType())
    assert planned_schema(update).column_names == ["n", "word"]
    assert catalog.load_table("raw.numbers").schema().column_names == ["n"]


def test_catalogs_delete_old_metadata_through_the_adapter(catalog: Catalog) -> None:
    override = IdempotentDeletes._delete_old_metadata
    assert with_idempotent_deletes(SqlCatalog)._delete_old_metadata is override
    assert type(catalog)._delete_old_metadata is override
