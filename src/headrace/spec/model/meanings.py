"""What Debezium's values mean, as SQL: a long that is a moment, an int that is a day, a number of any size.

A column's `doc` says what its values mean by the name that Kafka Connect has for it, such as `io.debezium.time.MicroTimestamp`;
that of an array says it of its elements: `array<io.debezium.time.Date>`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from headrace.spec.model.types import Array, Column, ColumnType, Decimal, Map, Primitive, Struct

Unit = Literal["d", "s", "ms", "us", "ns"]
UNAVAILABLE = "__debezium_unavailable_value"
"""What stands for a large value that an update left as it was, and that Postgres therefore did not send."""

ANY_DECIMAL = Decimal(38, 18)
"""What a numeric without precision and scale becomes, unless the file says otherwise."""

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
    """SQL for a value, its type, and whether a value can be there of which it makes null."""

    sql: str
    type: ColumnType
    may_fail: bool = False


def sql_type(column_type: ColumnType) -> str:
    """Return a type as Spark SQL has it."""
    if isinstance(column_type, Struct):
        return f"STRUCT<{', '.join(f'`{each.name}`: {sql_type(each.type)}' for each in column_type.columns)}>"
    if isinstance(column_type, Array):
        return f"ARRAY<{sql_type(column_type.element)}>"
    if isinstance(column_type, Map):
        return f"MAP<STRING, {sql_type(column_type.value)}>"
    return _SQL_TYPES.get(str(column_type), str(column_type).upper())


def convert(value: str, column: Column, *, cast: ColumnType | None = None, unit: Unit | None = None) -> Converted:
    """Return what a column's value means: by its `unit`, else by the column's `doc`, and then cast to a type.

    A decimal is never rounded: digits that it has no place for make it fail.
    """
    if _is_any_decimal(column.type):
        return _cast(Converted(_any_decimal_text(value), _TEXT, may_fail=True), cast or ANY_DECIMAL)
    meaning = column.doc or ""
    if isinstance(column.type, Array) and meaning.startswith("array<") and unit is None:
        inner = convert("_each", Column(column.name, column.type.element, doc=meaning[len("array<") : -1]))
        if inner.sql != "_each":
            return _cast(Converted(f"transform({value}, _each -> {inner.sql})", Array(inner.type), inner.may_fail), cast)
    chosen = unit or (_UNITS.get(meaning) if column.type in _NUMBERS else None)
    found = Converted(value, column.type)
    if chosen:
        found = Converted(_moment(value, chosen), _DAY if chosen == "d" else _MOMENT)
    elif meaning in _TIMES and column.type in _NUMBERS:
        found = Converted(f"date_format({_TIMES[meaning].format(value)}, 'HH:mm:ss.SSSSSS')", _TEXT)
    elif meaning == _ZONED and column.type == _TEXT:
        found = _cast(found, _MOMENT)
    return _cast(found, cast)


def is_unavailable(value: str, column_type: ColumnType) -> str | None:
    """Return the condition that Debezium could not tell a value; None for types of which it always can."""
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


def _cast(found: Converted, wanted: ColumnType | None) -> Converted:
    if wanted is None or wanted == found.type:
        return found
    if wanted == _TEXT:
        return Converted(f"CAST({found.sql} AS STRING)", _TEXT, found.may_fail)
    if isinstance(wanted, Decimal):
        text = found.sql if found.type == _TEXT else f"CAST({found.sql} AS STRING)"
        digits = "regexp_replace(regexp_extract(_text, '[.]([0-9]*)$', 1), '0+$', '')"
        exact = f"IF(length({digits}) > {wanted.scale}, NULL, try_cast(_text AS {sql_type(wanted)}))"
        sql = _bind("_text", text, exact)
    else:
        sql = f"try_cast({found.sql} AS {sql_type(wanted)})"
    return Converted(sql, wanted, may_fail=True)


def _moment(value: str, unit: Unit) -> str:
    if unit == "d":
        return f"date_add(DATE'1970-01-01', CAST({value} AS INT))"
    made = {"s": "timestamp_seconds({})", "ms": "timestamp_millis({})", "us": "timestamp_micros({})"}
    return made.get(unit, "timestamp_micros(({0} - pmod({0}, 1000)) div 1000)").format(value)


def lost(value: str, made: str, made_type: ColumnType) -> str:
    """Return the condition that a value is there, and what was made of it is not; of an array, any of its elements."""
    gone = f"({value} IS NOT NULL AND {made} IS NULL)"
    if not isinstance(made_type, Array):
        return gone
    counts = [f"size(filter({each}, _each -> _each IS NOT NULL))" for each in (made, value)]
    return f"({gone} OR {counts[0]} < {counts[1]})"


def _is_any_decimal(column_type: ColumnType) -> bool:
    """Return whether values are Debezium's VariableScaleDecimal: a scale, and the bytes of the unscaled value."""
    return isinstance(column_type, Struct) and {each.name: each.type for each in column_type.columns} == {
        "scale": Primitive("int"),
        "value": _BYTES,
    }


def _any_decimal_text(value: str) -> str:
    """Return SQL for the digits of a number of any scale, null where it has more than 38 of them.

    The bytes are the whole number in two's complement: 16 of them are read as a high and a low half.
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
    """Return SQL in which a name stands for a value: SQL has no other way to write it once and use it often."""
    return f"transform(array({value}), {name} -> {expression})[0]"
