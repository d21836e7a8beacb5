"""The columns that Headrace adds to every raw table, and the rules for column names."""

from __future__ import annotations

from collections.abc import Iterable

from headrace.spec.model.pipeline import Stream
from headrace.spec.model.types import Column, Primitive

COORDINATES = (
    Column("kafka_topic", Primitive("string")),
    Column("kafka_partition", Primitive("int")),
    Column("kafka_offset", Primitive("long")),
    Column("kafka_timestamp", Primitive("timestamp")),
    Column("checkpoint_id", Primitive("long")),
)
"""A row's Kafka coordinates and the batch that landed it."""

EXTRA = Column("_extra", Primitive("string"))
"""The fields of an event that the schema does not name, as JSON."""

RESERVED = frozenset(column.name for column in (*COORDINATES, EXTRA))


def landed_columns(stream: Stream) -> tuple[Column, ...]:
    """Return the raw table's columns. Only JSON has `_extra`: an Avro schema names every field."""
    event_time = (Column(stream.event_time.column, Primitive("timestamp")),) if stream.event_time else ()
    extra = (EXTRA,) if stream.format == "json" else ()
    return (*stream.columns, *event_time, *extra, *COORDINATES)


def name_problem(name: str, *, taken: Iterable[str], nested: bool = False) -> tuple[str, str] | None:
    """Return what is wrong with a column's name and what to do, or None if it is valid.

    Names must differ in more than case, because engines that read the table may ignore case. Only top-level columns can
    conflict with Headrace's own, so fields of a struct (`nested`) may have reserved names.
    """
    if not name.strip():
        return "a column has an empty name", "Name the column"
    if "." in name:
        return (
            f'column "{name}" contains a dot, which tables read as a path',
            "Remove the column (its values are kept in _extra)",
        )
    if not nested and name.lower() in RESERVED:
        return f'column name "{name}" is reserved for Headrace\'s own column', "Rename or remove the column"
    for other in taken:
        if other == name:
            return f'duplicate column "{name}"', "Remove one of the two"
        if other.lower() == name.lower():
            return f'columns "{other}" and "{name}" differ only in case', "Remove one of the two"
    return None
