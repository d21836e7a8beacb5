"""Debezium's change envelope: the row before and after a change, and its source."""

from __future__ import annotations

from dataclasses import replace

from headrace.spec.model.types import Array, Column, ColumnType, Map, Struct

ROWS = ("before", "after")
PARTS = (*ROWS, "op", "source")
"""The fields of every envelope. `ts_ms`, `transaction` and others depend on the connector and its settings."""


def envelope_problem(columns: tuple[Column, ...]) -> str | None:
    """Return why these are not the columns of an envelope, or None if they are."""
    types = {column.name: column.type for column in columns}
    missing = [name for name in PARTS if name not in types]
    if missing:
        return f"the schema has no {' and no '.join(missing)}"
    flat = next((name for name in (*ROWS, "source") if not isinstance(types[name], Struct)), None)
    return f'"{flat}" is {types[flat]}, not a record' if flat else None


def all_optional(columns: tuple[Column, ...]) -> tuple[Column, ...]:
    """Return the columns, nullable at every depth: a tombstone has no values, and a dropped column is missing later."""
    return tuple(replace(column, type=_optional(column.type), required=False) for column in columns)


def _optional(column_type: ColumnType) -> ColumnType:
    if isinstance(column_type, Struct):
        return Struct(all_optional(column_type.columns))
    if isinstance(column_type, Array):
        return Array(_optional(column_type.element))
    if isinstance(column_type, Map):
        return Map(_optional(column_type.value))
    return column_type
