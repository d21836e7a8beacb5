"""The forms of a Spark schema that a build needs, each made once.

PySpark writes a schema as JSON and converts it to Arrow's types in about a millisecond for fifty columns. A build does both for
every relation that it gives to Spark, and the schemas of a table's builds are always the same.
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
    """A schema as Spark's Java side takes it, and as its rows are in Arrow."""

    json: str
    arrow: pa.Schema


_forms: BoundedCache[Hashable, SchemaForms] = BoundedCache(2_048)


def schema_key(schema: StructType) -> Hashable:
    """Return a value that two schemas have in common if they have the same columns."""
    return tuple((field.name, field.nullable, _type_key(field.dataType)) for field in schema.fields)


def schema_forms(schema: StructType) -> SchemaForms:
    """Return the forms of a schema. A field name that a struct has twice is a PySparkValueError."""
    return _forms.get_or_build(
        schema_key(schema),
        lambda: SchemaForms(schema.json(), to_arrow_schema(schema, error_on_duplicated_field_names_in_struct=True)),
    )


def _type_key(kind: DataType) -> str:
    """Return a short name of a plain type; only JSON keeps the names in nested types apart."""
    return kind.simpleString() if isinstance(kind, AtomicType) else kind.json()
