"""Convert the values that a test writes down to the values of a column: text may stand for times and decimals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date, datetime, timezone
from decimal import Decimal as Number

from headrace.errors import SpecError
from headrace.spec.model.types import Array, Column, ColumnType, Decimal, Map, Primitive, Struct
from headrace.spec.problems import suggest

Row = dict[str, object]


def convert_row(row: Mapping[str, object], columns: Sequence[Column], *, where: str) -> Row:
    """Return a row with the types of its columns. Raises a SpecError for a column that does not exist or a wrong value."""
    types = {column.name: column.type for column in columns}
    for name in row:
        if name not in types:
            raise SpecError(f'not found: column "{name}"', where=where, next_step=suggest(name, types, plural="Columns"))
    try:
        return {name: convert(value, types[name]) for name, value in row.items()}
    except (ValueError, TypeError, ArithmeticError) as error:
        what = f"a value does not fit its column: {error}"
        raise SpecError(what, where=where, next_step=f"Correct the row: {dict(row)!r}") from error


def convert(value: object, kind: ColumnType) -> object:
    """Return a value as its type: Python's own, or what JSON has of it. Other values are returned as they are."""
    match kind:
        case _ if value is None:
            return None
        case Primitive("timestamp") if isinstance(value, str | datetime):
            moment = datetime.fromisoformat(value.replace("Z", "+00:00")) if isinstance(value, str) else value
            return (moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)).astimezone(timezone.utc)
        case Primitive("timestamp_ntz") if isinstance(value, str):
            return datetime.fromisoformat(value)
        case Primitive("date") if isinstance(value, str):
            return date.fromisoformat(value)
        case Decimal(_, scale) if isinstance(value, str | int | Number):
            return Number(value).quantize(Number(1).scaleb(-scale))
        case Primitive("float" | "double") if isinstance(value, int):
            return float(value)
        case Struct(columns) if isinstance(value, Mapping):
            return {column.name: convert(value.get(column.name), column.type) for column in columns}
        case Array(element) if isinstance(value, Sequence) and not isinstance(value, str):
            return [convert(inner, element) for inner in value]
        case Map(inner_kind) if isinstance(value, Mapping | list):
            return {name: convert(inner, inner_kind) for name, inner in dict(value).items()}
    return value
