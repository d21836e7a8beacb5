"""Convert integers that were written as floats: `55.0` is an integer, as in JSON Schema, and `55.5` is not."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from headrace.spec.model.types import Array, Column, ColumnType, Map, Primitive, Struct

_RANGES = {"int": 2**31, "long": 2**63}
_JSON_NAMES = {str: "str", bool: "bool", Decimal: "float", list: "array", dict: "object", type(None): "null"}


class NotWholeError(ValueError):
    """A value that its integer column can't hold. The message names its path."""


def make_whole(row: Any, columns: tuple[Column, ...], *, path: str = "$") -> None:
    """Replace the values in a row's integer columns, at every depth, by integers.

    A row has its columns' values as `f0`, `f1` …. An integer column has an int, or a Decimal where a float was written. Raise a
    NotWholeError for any other value, and for numbers that are not whole or too large.
    """
    for index, column in enumerate(columns):
        value = getattr(row, f"f{index}")
        if value is not None or column.required:
            setattr(row, f"f{index}", _whole(value, column.type, path=f"{path}.{column.name}"))


def _whole(value: Any, column_type: ColumnType, *, path: str) -> Any:
    if isinstance(column_type, Primitive):
        return _integer(value, _RANGES[column_type.name], path=path) if column_type.name in _RANGES else value
    if isinstance(column_type, Struct):
        make_whole(value, column_type.columns, path=path)
    elif isinstance(column_type, Array):
        return [None if item is None else _whole(item, column_type.element, path=f"{path}[...]") for item in value]
    elif isinstance(column_type, Map):
        inner = f"{path}[...]"
        return {name: None if item is None else _whole(item, column_type.value, path=inner) for name, item in value.items()}
    return value


def _integer(value: Any, end: int, *, path: str) -> int:
    kind = type(value)
    if kind not in (int, Decimal):
        raise NotWholeError(f"wrong type: Expected `int`, got `{_JSON_NAMES.get(kind, kind.__name__)}` - at `{path}`")
    if not -end <= value < end:  # before int(): a short text such as 1e999999 has a million digits
        raise NotWholeError(f"overflow: Expected `int` >= {-end} and <= {end - 1} - at `{path}`")
    if value != int(value):
        raise NotWholeError(f"wrong type: Expected `int`, got `float` - at `{path}`")
    return int(value)
