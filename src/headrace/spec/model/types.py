"""The column types that a schema can name, and nothing about how any engine stores them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

PrimitiveName = Literal["boolean", "int", "long", "float", "double", "date", "timestamp", "timestamp_ntz", "string", "binary"]


MAX_PRECISION = 38
"""The digits that a decimal can have, here and in every engine that reads the tables."""


@dataclass(frozen=True)
class Primitive:
    """A type without parameters. `timestamp` is a moment (UTC, microseconds); `timestamp_ntz` a wall-clock reading."""

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
    """A map whose keys are strings, as JSON's and Avro's are."""

    value: ColumnType

    def __str__(self) -> str:
        return f"map<string, {self.value}>"


ColumnType = Primitive | Decimal | Struct | Array | Map


@dataclass(frozen=True)
class Column:
    """A column, or a field of a struct. `doc` says what its values mean where the type does not, by Kafka Connect's name."""

    name: str
    type: ColumnType
    required: bool = False
    doc: str | None = field(default=None, compare=False)
