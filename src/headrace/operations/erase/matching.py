"""Spark conditions for a person's rows, and for others' rows that name the person. Pure: DataFrame in, columns out.

Identifiers reach Spark as values, never as SQL text.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import ArrayType, BinaryType, DataType, MapType, StringType, StructType

from headrace.operations.erase.identifiers import Identifiers, text_pattern
from headrace.spark.columns import named
from headrace.spark.times import EXACT_JSON
from headrace.spec.model.pipeline import PersonColumns

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

ERASED = "[erased]"
"""Replaces the person's identifiers in rows of others."""


def belongs_to_person(rows: DataFrame, whose: PersonColumns | None, person: Identifiers) -> Column:
    """Return whether a row is the person's. Without declared columns (`whose`), every row that names the person is."""
    if whose is None:
        return row_names_person(rows, person)
    conditions = [_any_of(rows, email, person.emails, lambda value: F.lower(F.trim(value))) for email in whose.emails]
    conditions += [_any_of(rows, phone, person.phones, _digits) for phone in whose.phones]
    for kind, expressions in whose.ids.items():
        conditions += [_any_of(rows, identity, person.ids.get(kind, frozenset()), F.trim) for identity in expressions]
    return _either([*conditions, row_names_person(rows, person, columns=whose.text)])


def row_names_person(rows: DataFrame, person: Identifiers, *, columns: Sequence[str] | None = None) -> Column:
    """Return whether a text in these columns, or in any, contains an email or a phone of the person."""
    pattern = text_pattern(person)
    if pattern is None:
        return F.lit(False)
    chosen = rows.columns if columns is None else columns
    return _either([text.rlike(pattern) for name in chosen if (text := _as_text(rows, name)) is not None])


def redacted_columns(rows: DataFrame, person: Identifiers) -> list[Column]:
    """Return a row's columns with `[erased]` instead of the person's emails and phones; other values are unchanged."""
    pattern = text_pattern(person)
    return [_replace(rows, name, pattern) if pattern else named(name) for name in rows.columns]


def bytes_name_person(value: Column, person: Identifiers, *, shortest_id: int) -> Column:
    """Return whether undecoded bytes contain any identifier of the person."""
    text = F.decode(value, "UTF-8")
    ids = [value for values in person.ids.values() for value in values if len(value) >= shortest_id]
    whole = [text.rlike(rf"(?<![0-9A-Za-z])\Q{_quoted(value)}\E(?![0-9A-Za-z])") for value in sorted(ids)]
    pattern = text_pattern(person)
    return _either([*whole, *([text.rlike(pattern)] if pattern else [])])


def values_of(rows: DataFrame, expression: str) -> Column:
    """Return an expression's values as an array of texts, for scalars and arrays of any type."""
    column = F.expr(expression)
    if isinstance(rows.select(column).schema.fields[0].dataType, ArrayType):
        return column.cast("array<string>")
    return F.array(column.cast("string"))


def _any_of(rows: DataFrame, expression: str, wanted: frozenset[str], plain: Callable[[Column], Column]) -> Column:
    if not wanted:
        return F.lit(False)
    return F.exists(values_of(rows, expression), lambda value: plain(value).isin(*sorted(wanted)))


def _either(conditions: Sequence[Column]) -> Column:
    safe = [F.coalesce(condition, F.lit(False)) for condition in conditions]
    return reduce(lambda left, right: left | right, safe, F.lit(False))


def _digits(value: Column) -> Column:
    return F.regexp_replace(value, "[^0-9]", "")


def _quoted(value: str) -> str:
    return value.replace("\\E", "\\E\\\\E\\Q")


def _as_text(rows: DataFrame, name: str) -> Column | None:
    """Return a column as searchable text, or None for numbers and times."""
    kind, column = rows.schema[name].dataType, named(name)
    if isinstance(kind, StringType):
        return column
    if isinstance(kind, BinaryType):
        return F.decode(column, "UTF-8")
    return F.to_json(column) if isinstance(kind, (StructType, ArrayType, MapType)) and _has_text(kind) else None


def _has_text(kind: DataType) -> bool:
    if isinstance(kind, StructType):
        return any(_has_text(field.dataType) for field in kind.fields)
    if isinstance(kind, ArrayType):
        return _has_text(kind.elementType)
    return isinstance(kind, (StringType, MapType))


def _replace(rows: DataFrame, name: str, pattern: str) -> Column:
    kind, column = rows.schema[name].dataType, named(name)
    if isinstance(kind, StringType):
        return F.regexp_replace(column, pattern, ERASED).alias(name)
    if isinstance(kind, BinaryType):
        return F.when(~F.coalesce(F.decode(column, "UTF-8").rlike(pattern), F.lit(False)), column).alias(name)
    text = _as_text(rows, name)
    if text is None:
        return column
    written = F.regexp_replace(F.to_json(column, EXACT_JSON), pattern, ERASED)
    return F.when(text.rlike(pattern), F.from_json(written, kind.simpleString(), EXACT_JSON)).otherwise(column).alias(name)
