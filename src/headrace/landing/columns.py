"""The columns of a raw table: those of its schema, and where in Kafka each row came from."""

from __future__ import annotations

from headrace.spec import COORDINATES, EXTRA
from headrace.spec.pipeline import Stream, TableName
from headrace.spec.types import Column, Primitive

QUARANTINE = TableName("metadata", "quarantine")
QUARANTINE_COLUMNS = (
    Column("stream", Primitive("string")),
    Column("topic", Primitive("string")),
    Column("partition", Primitive("int")),
    Column("offset", Primitive("long")),
    Column("timestamp", Primitive("timestamp")),
    Column("reason", Primitive("string")),
    Column("original_bytes", Primitive("binary")),
    Column("checkpoint_id", Primitive("long")),
)


def landed_columns(stream: Stream) -> tuple[Column, ...]:
    """Gives back the raw table's columns. Avro's schema names every field that can arrive, so only JSON has `_extra`."""
    made = (Column(stream.event_time.column, Primitive("timestamp")),) if stream.event_time else ()
    extra = (EXTRA,) if stream.format == "json" else ()
    return (*stream.columns, *made, *extra, *COORDINATES)
