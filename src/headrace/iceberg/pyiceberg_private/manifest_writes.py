"""Write manifests and manifest lists cheaply.

PyIceberg 0.12 computes the schema of a manifest, its writer and its Avro form for every file, which takes longer than writing
the entries of a small build. All manifests of a table have the same few schemas, so each form is computed once.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeVar

from pyiceberg import manifest
from pyiceberg.avro import file as avro_file
from pyiceberg.avro.resolver import construct_writer, resolve_writer
from pyiceberg.manifest import (
    ManifestFile,
    ManifestListWriter,
    ManifestListWriterV2,
    data_file_with_partition,
    manifest_entry_schema_with_data_file,
)
from pyiceberg.schema import Schema
from pyiceberg.utils.schema_conversion import AvroSchemaConversion

from headrace.bounded_cache import BoundedCache
from headrace.iceberg.pyiceberg_private.manifest_reads import remember_manifests

T = TypeVar("T")

_SCHEMAS = 1_024
"""How many forms of schemas are cached: each partition spec needs a few."""

_forms: BoundedCache[tuple[object, ...], tuple[tuple[object, ...], Any]] = BoundedCache(_SCHEMAS)


class PreparedSchemaConversion(AvroSchemaConversion):
    """A conversion to Avro that is computed once for each schema."""

    def iceberg_to_avro(self, schema: Schema, schema_name: str | None = None) -> Any:
        convert = super().iceberg_to_avro
        return _once(f"avro {schema_name}", lambda: convert(schema, schema_name), schema)


class RememberedManifestList(ManifestListWriterV2):
    """A manifest list whose content is cached for readers when it is written."""

    def add_manifests(self, manifest_files: list[ManifestFile]) -> ManifestListWriter:
        manifests = [self.prepare_manifest(manifest) for manifest in manifest_files]
        self._writer.write_block(manifests)
        remember_manifests(self._output_file.location, manifests)
        return self


def use_prepared_schemas() -> None:
    """Make PyIceberg write manifests with cached schemas, and cache its manifest lists. Idempotent."""
    private: Any = avro_file
    if private.AvroSchemaConversion is PreparedSchemaConversion:
        return
    manifest.data_file_with_partition = lru_cache(maxsize=_SCHEMAS)(data_file_with_partition)
    manifest.manifest_entry_schema_with_data_file = lru_cache(maxsize=_SCHEMAS)(manifest_entry_schema_with_data_file)
    manifest.ManifestListWriterV2 = RememberedManifestList  # type: ignore[misc]
    private.AvroSchemaConversion = PreparedSchemaConversion
    private.construct_writer = lambda file_schema: _once("writer", lambda: construct_writer(file_schema), file_schema)
    private.resolve_writer = lambda record_schema, file_schema: _once(
        "writer", lambda: resolve_writer(record_schema, file_schema), record_schema, file_schema
    )


def _once(form: str, make: Callable[[], T], *schemas: object) -> T:
    """Return a cached form of schemas. The cache holds references to the schemas, so that no other object gets their ids."""
    result: T = _forms.get_or_build((form, *map(id, schemas)), lambda: (schemas, make()))[1]
    return result
