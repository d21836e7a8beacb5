"""Convert Debezium's values in SQL: a long to a timestamp, an int to a date, a variable-scale number to a decimal.

A column's `doc` is the Kafka Connect name that gives the meaning of its values, such as `io.debezium.time.MicroTimestamp`. For
an array, it names that of the elements: `array<io.debezium.time.Date>`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from headrace.spec.model.types import Array, Column, ColumnType, Decimal, Map, Primitive, Struct

Unit = Literal["d", "s", "ms", "us", "ns"]
UNAVAILABLE = "__debezium_unavailable_value"
"""Debezium's placeholder for a large value that an update did not change, and that Postgres therefore did not send."""

ANY_DECIMAL = Decimal(38, 18)
"""The type of a numeric without precision and scale, unless the file sets another one."""

_SQL_TYPES = {"long": "BIGINT"}
_UNITS: dict[str, Unit] = {
    "io.debezium.time.Date": "d",
    "io.debezium.time.Timestamp": "ms",
    "io.debezium.time.MicroTimestamp": "us",
    "io.debezium.time.NanoTimestamp": "ns",
}
_TIMES: dict[str, str] = {
    "io.debezium.time.Time": "timestamp_millis({})",
    "io.debezium.time.MicroTime": "timestamp_micros({})",
    "io.debezium.time.NanoTime": "timestamp_micros({} div 1000)",
}
_ZONED = "io.debezium.time.ZonedTimestamp"
_NUMBERS = (Primitive("int"), Primitive("long"))
_TEXT, _BYTES, _MOMENT, _DAY = (Primitive("string"), Primitive("binary"), Primitive("timestamp"), Primitive("date"))


@dataclass(frozen=True)
class Converted:
    """SQL for a converted value, its type, and whether it can be null for a value that is not null."""

    sql: str
    type: ColumnType
    may_fail: bool = False


def sql_type(column_type: ColumnType) -> str:
    """Return a type in Spark SQL."""
    if isinstance(column_type, Struct):
        return f"STRUCT<{', '.join(f'`{field.name}`: {sql_type(field.type)}' for field in column_type.columns)}>"
    if isinstance(column_type, Array):
        return f"ARRAY<{sql_type(column_type.element)}>"
    if isinstance(column_type, Map):
        return f"MAP<STRING, {sql_type(column_type.value)}>"
    return _SQL_TYPES.get(str(column_type), str(column_type).upper())


def convert(value: str, column: Column, *, cast: ColumnType | None = None, unit: Unit | None = None) -> Converted:
    """Return SQL that converts a column's value by its `unit`, else by the column's `doc`, and then casts it.

    A decimal is never rounded: a value with more decimal places than the type has becomes null.
    """
    if _is_any_decimal(column.type):
        return _cast(Converted(_any_decimal_text(value), _TEXT, may_fail=True), cast or ANY_DECIMAL)
    meaning = column.doc or ""
    if isinstance(column.type, Array) and meaning.startswith("array<") and unit is None:
        inner = convert("_each", Column(column.name, column.type.element, doc=meaning[len("array<") : -1]))
        if inner.sql != "_each":
            return _cast(Converted(f"transform({value}, _each -> {inner.sql})", Array(inner.type), inner.may_fail), cast)
    chosen = unit or (_UNITS.get(meaning) if column.type in _NUMBERS else None)
    converted = Converted(value, column.type)
    if chosen:
        converted = Converted(_moment(value, chosen), _DAY if chosen == "d" else _MOMENT)
    elif meaning in _TIMES and column.type in _NUMBERS:
        converted = Converted(f"date_format({_TIMES[meaning].format(value)}, 'HH:mm:ss.SSSSSS')", _TEXT)
    elif meaning == _ZONED and column.type == _TEXT:
        converted = _cast(converted, _MOMENT)
    return _cast(converted, cast)


def is_unavailable(value: str, column_type: ColumnType) -> str | None:
    """Return the condition that a value is Debezium's placeholder, or None for types that it always sends."""
    if column_type == _TEXT:
        return f"{value} = '{UNAVAILABLE}'"
    if column_type == _BYTES:
        return f"{value} = CAST('{UNAVAILABLE}' AS BINARY)"
    if isinstance(column_type, Map) and column_type.value == _TEXT:
        return f"element_at({value}, '{UNAVAILABLE}') = '{UNAVAILABLE}'"
    if not isinstance(column_type, Array):
        return None
    if column_type.element in _NUMBERS:
        codes = ", ".join(str(code) for code in UNAVAILABLE.encode())
        return f"{value} = CAST(array({codes}) AS {sql_type(column_type)})"
    inner = is_unavailable(f"{value}[0]", column_type.element)
    return f"(size({value}) = 1 AND {inner})" if inner else None


def _cast(converted: Converted, wanted: ColumnType | None) -> Converted:
    if wanted is None or wanted == converted.type:
        return converted
    if wanted == _TEXT:
        return Converted(f"CAST({converted.sql} AS STRING)", _TEXT, converted.may_fail)
    if isinstance(wanted, Decimal):
        text = converted.sql if converted.type == _TEXT else f"CAST({converted.sql} AS STRING)"
        digits = "regexp_replace(regexp_extract(_text, '[.]([0-9]*)$', 1), '0+$', '')"
        exact = f"IF(length({digits}) > {wanted.scale}, NULL, try_cast(_text AS {sql_type(wanted)}))"
        sql = _bind("_text", text, exact)
    else:
        sql = f"try_cast({converted.sql} AS {sql_type(wanted)})"
    return Converted(sql, wanted, may_fail=True)


def _moment(value: str, unit: Unit) -> str:
    if unit == "d":
        return f"date_add(DATE'1970-01-01', CAST({value} AS INT))"
    functions = {"s": "timestamp_seconds({})", "ms": "timestamp_millis({})", "us": "timestamp_micros({})"}
    return functions.get(unit, "timestamp_micros(({0} - pmod({0}, 1000)) div 1000)").format(value)


def lost_condition(value: str, converted: str, converted_type: ColumnType) -> str:
    """Return the condition that a value is not null and its conversion is. For an array, that holds for any element."""
    is_null = f"({value} IS NOT NULL AND {converted} IS NULL)"
    if not isinstance(converted_type, Array):
        return is_null
    counts = [f"size(filter({array}, _each -> _each IS NOT NULL))" for array in (converted, value)]
    return f"({is_null} OR {counts[0]} < {counts[1]})"


def _is_any_decimal(column_type: ColumnType) -> bool:
    """Return whether values are Debezium's VariableScaleDecimal: a scale, and the bytes of the unscaled value."""
    return isinstance(column_type, Struct) and {field.name: field.type for field in column_type.columns} == {
        "scale": Primitive("int"),
        "value": _BYTES,
    }


def _any_decimal_text(value: str) -> str:
    """Return SQL for the digits of a variable-scale number, null for more than 38 digits.

    The bytes are the unscaled value in two's complement, read as a high and a low half of 8 bytes.
    """
    digits = f"hex({value}.value)"
    padded = f"lpad({digits}, 32, IF(substr({digits}, 1, 1) >= '8', 'F', '0'))"
    high = "CAST(conv(substr(_hex, 1, 16), 16, -10) AS DECIMAL(20, 0))"
    low = "CAST(conv(substr(_hex, 17, 16), 16, 10) AS DECIMAL(20, 0))"
    whole = f"try_add(try_multiply({high}, CAST(18446744073709551616 AS DECIMAL(20, 0))), {low})"
    number = _bind("_hex", f"IF(length({value}.value) > 16, NULL, {padded})", whole)
    scale, size = f"{value}.scale", "length(_digits)"
    longer = f"lpad(_digits, greatest({size}, {scale} + 1), '0')"
    shifted = _bind(
        "_digits", "CAST(abs(_whole) AS STRING)", f"IF({scale} < 0, concat(_digits, repeat('0', -{scale})), {longer})"
    )
    pointed = (
        f"concat(IF(_whole < 0, '-', ''), left(_digits, {size} - greatest({scale}, 0)), "
        f"IF({scale} > 0, concat('.', right(_digits, {scale})), ''))"
    )
    return _bind("_whole", number, _bind("_digits", shifted, pointed))


def _bind(name: str, value: str, expression: str) -> str:
    """Return SQL that binds a value to a name, so that an expression can use it repeatedly."""
    return f"transform(array({value}), {name} -> {expression})[0]"
