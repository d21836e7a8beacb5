"""Cached forms of Spark schemas: JSON and Arrow.

PySpark takes about a millisecond for fifty columns to convert a schema to JSON and to Arrow's types. A build needs both for
every relation that it passes to Spark, and the schemas of a table's builds are always the same.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import AtomicType, DataType, StructType

from headrace.bounded_cache import BoundedCache


@dataclass(frozen=True)
class SchemaForms:
    """A schema as JSON for Spark's Java API, and as Arrow schema."""

    json: str
    arrow: pa.Schema


_forms: BoundedCache[Hashable, SchemaForms] = BoundedCache(2_048)


def schema_key(schema: StructType) -> Hashable:
    """Return a key that is equal for schemas with the same columns."""
    return tuple((field.name, field.nullable, _type_key(field.dataType)) for field in schema.fields)


def schema_forms(schema: StructType) -> SchemaForms:
    """Return the forms of a schema. Raises PySparkValueError for duplicate field names in a struct."""
    return _forms.get_or_build(
        schema_key(schema),
        lambda: SchemaForms(schema.json(), to_arrow_schema(schema, error_on_duplicated_field_names_in_struct=True)),
    )


def _type_key(kind: DataType) -> str:
    """Return the short name of a plain type, or the JSON of a nested type, which is unambiguous for any field names."""
    return kind.simpleString() if isinstance(kind, AtomicType) else kind.json()
