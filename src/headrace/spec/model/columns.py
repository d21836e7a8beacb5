"""The columns that Headrace adds to every raw table, and the names that a schema can't use."""

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
"""Where a row came from, and the batch that landed it."""

EXTRA = Column("_extra", Primitive("string"))
"""What an event holds and the schema doesn't name, as JSON."""

RESERVED = frozenset(column.name for column in (*COORDINATES, EXTRA))


def landed_columns(stream: Stream) -> tuple[Column, ...]:
    """Return the raw table's columns. Avro's schema names every field that can arrive, so only JSON has `_extra`."""
    made = (Column(stream.event_time.column, Primitive("timestamp")),) if stream.event_time else ()
    extra = (EXTRA,) if stream.format == "json" else ()
    return (*stream.columns, *made, *extra, *COORDINATES)


def name_problem(name: str, *, taken: Iterable[str], nested: bool = False) -> tuple[str, str] | None:
    """Return what is wrong with a column's name and what to do, or None where it is fine.

    Names differ in more than upper and lower case, because engines that read the table may ignore case. Only the columns
    of the table itself stand beside Headrace's own, so fields of a struct (`nested`) may have any name.
    """
    if not name.strip():
        return "a column has an empty name", "Name it"
    if "." in name:
        return (
            f'column "{name}" has a dot in its name, which tables read as a path',
            "Leave the column out (its values are kept in _extra)",
        )
    if not nested and name.lower() in RESERVED:
        return f'column "{name}" has a name that Headrace needs for its own column', "Rename it or leave it out"
    for other in taken:
        if other == name:
            return f'column "{name}" stands here twice', "Remove one of the two"
        if other.lower() == name.lower():
            return f'columns "{other}" and "{name}" differ only in case', "Remove one of the two"
    return None
