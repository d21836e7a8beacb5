"""The rows of a data file as Arrow, in the table's current schema: what the file lacks is null, narrower types are widened."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import ArrowScan, schema_to_pyarrow
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask, Table

BATCH_ROWS = 65_536


def row_schema(schema: Schema) -> pa.Schema:
    """Return the Arrow schema of a table's rows: 32-bit offsets, and every field nullable."""
    return pa.schema([_plain(field) for field in schema_to_pyarrow(schema, include_field_ids=False)])


def read_rows(table: Table, file: DataFile) -> pa.Table:
    """Return all rows that are written in a data file, in order, deleted ones too.

    Columns are found by field id, nested ones too, so a file of an older schema reads as one of the current schema.
    """
    scan = ArrowScan(table.metadata, table.io, table.schema(), AlwaysTrue())
    # No delete files: a row's number is its position in the file.
    return as_rows(scan.to_table([FileScanTask(file)]), row_schema(table.schema()))


def as_rows(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return rows with the types of `schema`."""
    return rows if rows.schema.equals(schema) else rows.select(schema.names).cast(schema)


def batches_of(rows: pa.Table) -> Iterator[pa.RecordBatch]:
    """Return the rows in batches of one size: taking rows out of few large batches is fast."""
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
