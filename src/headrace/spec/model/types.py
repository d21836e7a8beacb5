"""The column types of schemas, independent of any engine."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

PrimitiveName = Literal["boolean", "int", "long", "float", "double", "date", "timestamp", "timestamp_ntz", "string", "binary"]


MAX_PRECISION = 38
"""The maximum precision of a decimal, here and in every engine that reads the tables."""


@dataclass(frozen=True)
class Primitive:
    """A type without parameters. `timestamp` is a point in time (UTC, microseconds), `timestamp_ntz` a wall-clock time."""

    name: PrimitiveName

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Decimal:
    precision: int
    scale: int

    def __str__(self) -> str:
        return f"decimal({self.precision},{self.scale})"


@dataclass(frozen=True)
class Struct:
    columns: tuple[Column, ...]

    def __str__(self) -> str:
        return f"struct<{', '.join(f'{column.name}: {column.type}' for column in self.columns)}>"


@dataclass(frozen=True)
class Array:
    element: ColumnType

    def __str__(self) -> str:
        return f"array<{self.element}>"


@dataclass(frozen=True)
class Map:
    """A map with string keys, as in JSON and Avro."""

    value: ColumnType

    def __str__(self) -> str:
        return f"map<string, {self.value}>"


ColumnType = Primitive | Decimal | Struct | Array | Map


@dataclass(frozen=True)
class Column:
    """A column, or a field of a struct. `doc` is the Kafka Connect name that gives the meaning of its values, if any."""

    name: str
    type: ColumnType
    required: bool = False
    doc: str | None = field(default=None, compare=False)
