"""Read a data file as Arrow in the table's current schema: missing columns are null, narrower types are widened."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema

BATCH_ROWS = 65_536
_FIELD_ID = b"PARQUET:field_id"


@dataclass(frozen=True)
class RowFormat:
    """The in-memory format of a table's rows: `schema` has 32-bit offsets, and every field is nullable.

    `current` is the table's schema with field ids, which identify the columns of files.
    """

    schema: pa.Schema
    current: pa.Schema
    ids: tuple[tuple[object, ...], ...]

    @classmethod
    def of(cls, schema: Schema) -> RowFormat:
        current = schema_to_pyarrow(schema, include_field_ids=True)
        plain = pa.schema([_plain(field) for field in schema_to_pyarrow(schema, include_field_ids=False)])
        return cls(plain, current, tuple(map(_ids_of, current)))


def read_rows(io: FileIO, file: DataFile, form: RowFormat) -> pa.Table:
    """Return all rows of a data file in file order, including deleted ones.

    Columns, also nested ones, are matched by field id, so a file of an older schema is read in the current schema. PyIceberg's
    own projection is not used: 0.12 turns null lists into empty ones.
    """
    with io.new_input(file.file_path).open() as stream:
        rows = pq.read_table(stream, use_threads=False)
    has_ids = all(map(_has_id, rows.schema))  # otherwise columns are matched by name
    if has_ids and tuple(map(_ids_of, rows.schema)) != form.ids:
        rows = rows.combine_chunks()
        have = {_id_of(field): rows.column(index) for index, field in enumerate(rows.schema)}
        kinds = {_id_of(field): field for field in rows.schema}
        columns = [
            _project(_joined(have[_id_of(field)]), kinds[_id_of(field)], field)
            if _id_of(field) in have
            else pa.nulls(rows.num_rows, field.type)
            for field in form.current
        ]
        rows = pa.Table.from_arrays(columns, names=form.current.names)
    return as_rows(rows, form.schema)


def as_rows(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return rows with the types of `schema`."""
    return rows if rows.schema.equals(schema) else rows.select(schema.names).cast(schema)


def batches_of(rows: pa.Table) -> Iterator[pa.RecordBatch]:
    """Yield the rows in batches of equal size: taking rows out of few large batches is fast."""
    for first in range(0, rows.num_rows, BATCH_ROWS):
        yield from rows.slice(first, BATCH_ROWS).combine_chunks().to_batches()


def _plain(field: pa.Field) -> pa.Field:
    return pa.field(field.name, _plain_type(field.type))


def _plain_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_large_string(kind):
        return pa.string()
    if pa.types.is_large_binary(kind):
        return pa.binary()
    if pa.types.is_struct(kind):
        return pa.struct([_plain(field) for field in kind])
    if pa.types.is_large_list(kind) or pa.types.is_list(kind):
        return pa.list_(_plain(kind.value_field))
    if pa.types.is_map(kind):
        return pa.map_(_plain_type(kind.key_type), _plain(kind.item_field))
    return kind


def _has_id(field: pa.Field) -> bool:
    return _FIELD_ID in (field.metadata or {})


def _id_of(field: pa.Field) -> int:
    return int((field.metadata or {})[_FIELD_ID])


def _children(kind: pa.DataType) -> list[pa.Field]:
    if pa.types.is_struct(kind):
        return list(kind)
    if pa.types.is_map(kind):
        return [kind.key_field, kind.item_field]
    return [kind.value_field] if pa.types.is_list(kind) or pa.types.is_large_list(kind) else []


def _ids_of(field: pa.Field) -> tuple[object, ...]:
    """Return the ids and names of a field and its nested fields: Java writes the name `3ds` as `_33ds`."""
    return _id_of(field), field.name, *(_ids_of(child) for child in _children(field.type))


def _joined(column: pa.ChunkedArray) -> pa.Array:
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def _project(values: pa.Array, have: pa.Field, wanted: pa.Field) -> pa.Array:
    """Return a field's values in the current schema: missing nested fields are null, numbers are widened.

    Lists and strings may still have other offsets than in the schema; casting the whole column fixes them.
    """
    kind = wanted.type
    if not _children(kind):
        return values.cast(kind)
    mask = values.is_null()
    if pa.types.is_struct(kind):
        known = {_id_of(field): (values.field(index), field) for index, field in enumerate(have.type)}
        parts = [
            _project(*known[_id_of(field)], field) if _id_of(field) in known else pa.nulls(len(values), field.type)
            for field in kind
        ]
        return pa.StructArray.from_arrays(parts, names=[field.name for field in kind], mask=mask)
    if pa.types.is_map(kind):
        keys = _project(values.keys, have.type.key_field, kind.key_field)
        items = _project(values.items, have.type.item_field, kind.item_field)
        return pa.MapArray.from_arrays(values.offsets, keys, items, mask=mask)
    elements = _project(values.values, have.type.value_field, kind.value_field)
    kinds = pa.LargeListArray if pa.types.is_large_list(have.type) else pa.ListArray
    return kinds.from_arrays(values.offsets, elements, mask=mask)
